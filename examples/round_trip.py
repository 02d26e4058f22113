"""Render a conversation, parse what a model answers, and read the whole prompt back."""

import chatcodec

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Look up the weather.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]

fmt = chatcodec.get_format("qwen3_5")
prompt = fmt.render([{"role": "user", "content": "Will it rain in Oslo?"}], tools=TOOLS, add_generation_prompt=True)

completion = (
    "I should look.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call><|im_end|>"
)
reply = fmt.parse(completion, tools=TOOLS, prompt=prompt)
for call in reply.message.tool_calls:
    print("call:", call.name, call.arguments)

conversation = fmt.parse_prompt(prompt.text)
again = fmt.render(conversation.messages, tools=conversation.tools, **conversation.options)
print("the prompt comes back exactly:", again.text == prompt.text)
