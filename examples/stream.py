"""Feed a completion token by token, and see the events as they come."""

import chatcodec

COMPLETION = (
    "The user greets me.<|think:end|>Hello! Let me look.<|tool_call:start|>search\n"
    "<|tool_arg:start|>query<|tool_arg:value|>tides in Brest<|tool_arg:end|>\n<|tool_call:end|>\n<|im:end|>"
)

stream = chatcodec.get_format("solar_open2").stream()
for start in range(0, len(COMPLETION), 4):
    for event in stream.feed(COMPLETION[start : start + 4]):
        print(event)
for event in stream.close(finish_reason="stop"):
    print(event)
print(stream.reply.finish_reason, stream.reply.message.tool_calls[0].arguments)
