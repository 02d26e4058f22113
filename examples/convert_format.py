"""Take training text from one format to another, and say what the other cannot keep."""

import chatcodec

SOURCE = chatcodec.get_format("qwen3_5")
TARGET = chatcodec.get_format("solar_open2")

text = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\n<think>\nA greeting.\n</think>\n\nHello!<|im_end|>\n<|im_start|>user\nThanks<|im_end|>\n"
)
conversation = SOURCE.parse_prompt(text)
rendered = TARGET.render(conversation.messages, tools=conversation.tools)
print(rendered.text)
for loss in rendered.losses:
    print("lost:", loss)
