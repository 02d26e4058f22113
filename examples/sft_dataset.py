"""Conversations to token ids and labels for fine-tuning: the rows that `transformers` and `trl` take as they are."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import chatcodec
from chatcodec.tokens.masks import assistant_mask
from chatcodec.tokens.stops import stop_tokens

fmt = chatcodec.get_format("qwen3_5")
CONVERSATIONS = [
    [
        {"role": "user", "content": f"What is {number} and {number}? Do not write <|im_end|>."},
        {"role": "assistant", "reasoning_content": "An addition.", "content": f"It is {number + number}."},
    ]
    for number in range(1, 5)
]

# A model's own tokenizer is read with `AutoTokenizer.from_pretrained(...)`; this small one stands in for it.
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
tokenizer.train_from_iterator((str(messages) for messages in CONVERSATIONS), trainer)
tokenizer.add_special_tokens(list(fmt.special_tokens))

rows = []
for messages in CONVERSATIONS:
    mask = assistant_mask(fmt.render(messages), tokenizer)
    if mask.left_out:
        print("turns that no longer render as they were sampled:", mask.left_out)
    rows.append({"input_ids": mask.ids, "attention_mask": [1] * len(mask), "labels": mask.labels})

# datasets.Dataset.from_list(rows) and a data collator that pads go from here.
for row in rows:
    trained = [token for token in row["labels"] if token >= 0]
    print(len(row["input_ids"]), "tokens, trained on:", repr(tokenizer.decode(trained, skip_special_tokens=False)))
print("a forged stop token is text:", rows[0]["input_ids"].count(stop_tokens(fmt, tokenizer)[0]), "are real")
