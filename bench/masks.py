"""The other side of bench/masks.ts: masks of llguidance, and verdicts of jsonschema. A line of JSON for each question and answer."""

import base64
import json
import random
import sys
from importlib import metadata

import jsonschema
import llguidance
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper


DROPPED = {"if", "then", "else", "not", "uniqueItems", "multipleOf", "format"}


class Vocabulary:
    """Tokens without merges of their own: a text is given as tokens, never as text."""

    def __init__(self, tokens):
        self.tokens = tokens + [b"<|end|>"]
        self.eos_token_id = len(tokens)
        self.bos_token_id = None
        self.special_token_ids = [len(tokens)]

    def __call__(self, text):
        return list(text)


class Side:
    def __init__(self):
        self.tokenizer = None
        self.eos = 0
        self.start = None
        self.validator = None
        self.kept = None

    def vocabulary(self, tokens):
        words = Vocabulary([base64.b64decode(token) for token in tokens])
        self.tokenizer = LLTokenizer(TokenizerWrapper(words))
        self.eos = words.eos_token_id
        return {"llguidance": llguidance.__version__, "jsonschema": metadata.version("jsonschema")}

    def open(self, schema, kept):
        """`kept`: the schema without the keywords that are dropped."""
        cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        self.validator = cls(schema, format_checker=cls.FORMAT_CHECKER)
        self.kept = cls(kept)
        options = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=options)
        except ValueError as error:
            return {"error": str(error)}
        self.start = LLMatcher(self.tokenizer, grammar, log_level=0)
        if self.start.is_error():
            return {"error": self.start.get_error()}
        return {}

    def masks(self, tokens):
        """The mask before each token, as long as tokens are allowed, and the one after the last."""
        matcher = self.start.deep_copy()
        masks = [base64.b64encode(matcher.compute_bitmask()).decode()]
        for token in tokens:
            if matcher.is_stopped() or matcher.try_consume_tokens([token]) != 1:
                break
            masks.append(base64.b64encode(matcher.compute_bitmask()).decode())
        return {"masks": masks}

    def takes(self, tokens):
        """Whether a text may begin like this. A mask has only one way to write what is forced."""
        return {"takes": self.start.deep_copy().try_consume_tokens(tokens) == len(tokens)}

    def finish(self, tokens, count, seed):
        """Texts that begin with these tokens, chosen at random byte by byte."""
        texts = []
        for turn in range(count):
            chance = random.Random(seed * 31 + turn)
            matcher = self.start.deep_copy()
            if matcher.try_consume_tokens(tokens) != len(tokens):
                break
            text = self.random_end(matcher, chance, 20 * turn)
            if text is not None:
                texts.append(base64.b64encode(text).decode())
        return {"texts": texts}

    def random_end(self, matcher, chance, free):
        text = bytearray()
        for count in range(1200):
            if matcher.is_accepting() and (count >= free or matcher.is_stopped()):
                return bytes(text)
            if matcher.is_stopped():
                return None
            mask = matcher.compute_bitmask()
            allowed = [byte for byte in range(256) if mask[byte >> 3] & (1 << (byte & 7)) != 0]
            if not allowed:
                return bytes(text) if matcher.is_accepting() else None
            closing = [byte for byte in allowed if byte in b'"}]']
            plain = [byte for byte in allowed if chr(byte).isalnum() and byte < 128]
            likely = closing if closing and count >= free else plain
            byte = chance.choice(likely if likely and chance.random() < 0.85 else allowed)
            if matcher.try_consume_tokens([byte]) != 1:
                return None
            text.append(byte)
        return None

    def judge(self, texts, all=True):
        """The keywords that each text breaks; null where the validator fails."""
        answers = []
        for text in texts:
            try:
                value = json.loads(text)
                answers.append(sorted({keyword for error in (self.validator if all else self.kept).iter_errors(value) for keyword in leaves(error)}))
            except json.JSONDecodeError:
                answers.append(["JSON"])
            except Exception:
                answers.append(None)
        return {"broken": answers}


def leaves(error):
    """The keywords that fail: of a failed choice those of each part, and a keyword that is dropped instead of those inside it."""
    path = list(error.absolute_schema_path)
    for before, name in zip([None, *path], path):
        if name in DROPPED and before not in ("properties", "patternProperties"):
            return {name}
    if error.context:
        return {keyword for inner in error.context for keyword in leaves(inner)}
    return {error.validator or "false"}


def main():
    side = Side()
    for line in sys.stdin:
        question = json.loads(line)
        name = question.pop("ask")
        try:
            answer = getattr(side, name)(**question)
        except Exception as error:  # a schema that a library cannot read
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


sys.setrecursionlimit(4000)
main()
