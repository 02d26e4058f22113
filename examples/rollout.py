"""A rollout of two turns in token ids: the second prompt begins with exactly the ids that were sent and sampled."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import chatcodec
from chatcodec.tokens.encoding import encode
from chatcodec.tokens.extending import extend
from chatcodec.tokens.stops import stop_tokens

fmt = chatcodec.get_format("qwen3_5")
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object", "properties": {"port": {"type": "string"}}}}}]
WRITTEN = "<think>I look it up.</think> <tool_call> <function=tide> <parameter=port> Brest </parameter> </function> </tool_call>"

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
tokenizer.train_from_iterator([WRITTEN] * 3, trainer)
tokenizer.add_special_tokens(list(fmt.special_tokens))


def sample(text: str) -> list[int]:
    """What an engine would give: the ids of a completion, its stop token last."""
    ids: list[int] = tokenizer.encode(text).ids
    assert ids[-1] in stop_tokens(fmt, tokenizer)
    return ids


prompt = fmt.render([{"role": "user", "content": "When is high water in Brest?"}], tools=TOOLS, add_generation_prompt=True)
ids = encode(prompt, tokenizer).ids
mask = [0] * len(ids)

sampled = sample(
    "I look it up.\n</think>\n\n<tool_call>\n<function=tide>\n<parameter=port>\nBrest\n</parameter>\n</function>\n</tool_call><|im_end|>"
)
ids, mask = ids + sampled, mask + [1] * len(sampled)
reply = fmt.parse(tokenizer.decode(sampled, skip_special_tokens=False), tools=TOOLS, prompt=prompt)
print("the model calls:", [(call.name, call.arguments) for call in reply.message.tool_calls])

results = [{"role": "tool", "tool_call_id": "call_0", "content": "14:20 <|im_end|>"}]
extended = extend(fmt, ids, results, tools=TOOLS, tokenizer=tokenizer)
assert extended.ids is not None and extended.ids[: len(ids)] == ids
print("added:", repr(extended.added.text))
ids, mask = extended.ids, mask + [0] * (len(extended.ids) - len(ids))

sampled = sample("It is in the results.\n</think>\n\nAt 14:20.<|im_end|>")
ids, mask = ids + sampled, mask + [1] * len(sampled)
print(len(ids), "tokens,", sum(mask), "of them sampled")
