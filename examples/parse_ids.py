"""Parse token ids: a control token counts by its id, and the same characters in other tokens are text.

Needs the package `tokenizers`; the tokenizer is trained here, on the completion itself.
"""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import chatcodec

fmt = chatcodec.get_format("solar_open2")
completion = "I should say how calls are written.<|think:end|>Begin with <|tool_call:start|>, and end the turn.<|im:end|>"

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator([completion], trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
before, quoted, after = completion.partition("<|tool_call:start|>")
spelt = tokenizer.encode(quoted).ids  # in ordinary tokens, since the special ones are not known yet
tokenizer.add_special_tokens(list(fmt.special_tokens))
ids = [*tokenizer.encode(before).ids, *spelt, *tokenizer.encode(after).ids]

print("as text:", fmt.parse(completion).message.content)
print("as ids: ", fmt.parse_ids(ids, tokenizer).message.content)

stream = fmt.stream_ids(tokenizer)
for number in ids:
    for event in stream.feed(number):
        print(event)
stream.close("stop")
print(stream.reply.message.model_dump())
