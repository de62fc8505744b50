"""The default model's GGUF as a folder that vLLM serves, and once more with tokens for the marks of a thought."""

import json
import pathlib
import shutil
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

source, out = map(pathlib.Path, sys.argv[1:3])
folder, name = str(source.parent), source.name
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
# Without `dequantize` it cannot be saved.
model = AutoModelForCausalLM.from_pretrained(
    folder,
    gguf_file=name,
    dtype=torch.bfloat16,
    quantization_config=GgufConfig(gguf_file=name, dequantize=True),
)
plain, thinking = out / "model", out / "model-think"
model.save_pretrained(plain)
tokenizer.save_pretrained(plain)

# vLLM finds the end of a thought by a token. Two that the model never writes become the marks.
marks = {8: "<think>", 9: "</think>"}
shutil.copytree(plain, thinking, dirs_exist_ok=True)
file = thinking / "tokenizer.json"
data = json.loads(file.read_text())
for token in data["added_tokens"]:
    if token["id"] in marks:
        token.update(content=marks[token["id"]], special=False)
vocabulary = data["model"]["vocab"]
for text in [text for text, index in vocabulary.items() if index in marks]:
    index = vocabulary.pop(text)
    vocabulary[marks[index]] = index
file.write_text(json.dumps(data))
