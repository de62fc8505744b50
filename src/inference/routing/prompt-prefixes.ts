import type { EngineRequest, Message, Part, Prompt } from '../../generation/request.ts';

/**
 * The prefixes of a prompt, each as a hash of everything up to its end. Two prompts with the same hash at an index begin with the same
 * characters, in the same cache scope.
 */
export interface PromptPrefixes {
  readonly hashes: readonly number[];
  /** Tokens up to the end of each prefix, estimated from its share of the characters. */
  readonly tokens: readonly number[];
  /** Present for a conversation that this process was sent. */
  readonly messages?: MessageEnds;
}

/** Hashes of a conversation up to the end of its parts: first of none (its cache scope), then of its tools, then of each message. */
interface MessageEnds {
  readonly hashes: readonly number[];
  readonly tokens: readonly number[];
}

/** Later messages are not told apart. */
const messageEndsMax = 1_000;

export const noPrefixes: PromptPrefixes = { hashes: [], tokens: [] };

/**
 * Where prefixes end, in characters: 512 apart at first (some 128 tokens: a block of vLLM is 16, a page of SGLang 1 to 64), and at most a
 * quarter of the length apart, so that the longest prompt has 68 of them.
 */
const ends: readonly number[] = [
  ...Array.from({ length: 16 }, (_, index) => 512 * (index + 1)),
  ...Array.from({ length: 28 }, (_, index) => 8_192 + 2_048 * (index + 1)),
  ...Array.from({ length: 24 }, (_, index) => 65_536 + 8_192 * (index + 1)),
];

/** Characters of a block of a recorded prompt (some 64 tokens), and maximum of blocks: a million tokens, about. */
export const recordedBlockCharacters = 256;
const recordedBlocksMax = 16_384;

/**
 * Returns hashes of a prompt up to the end of each of its blocks of equal length, which are finer than routing needs, and its characters. No
 * blocks under zero data retention.
 */
export function blocksOf(
  request: EngineRequest,
  salt: number,
): { readonly hashes: readonly number[]; readonly characters: number } {
  if (!request.retain) return { hashes: [], characters: 0 };
  const hasher = new PrefixHasher(salt, (index) =>
    index < recordedBlocksMax ? recordedBlockCharacters * (index + 1) : undefined,
  );
  hasher.text(request.cacheScope);
  hasher.begin();
  readPrompt(request, hasher);
  return hasher;
}

/** Returns a hash of 53 bits. */
export function hashOf(text: string, salt: number): number {
  const hasher = new TurnHasher(salt);
  hasher.text(text);
  return hasher.hash();
}

/**
 * Reads the prompt in the order in which templates print it: tools, then the messages. Servers render it themselves, so this is not their
 * text; but if two of these texts begin alike, so do the two that the servers' template makes of them. `salt` is a secret, so that nobody
 * can construct prompts that collide here.
 *
 * A request under zero data retention has no prefixes: nothing of it is kept, and no other request can match it.
 */
export function prefixesOf(request: EngineRequest, promptTokens: number, salt: number): PromptPrefixes {
  if (!request.retain) return noPrefixes;
  const hasher = new PrefixHasher(salt, (index) => ends[index]);
  hasher.text(request.cacheScope);
  hasher.begin();
  readPrompt(request, hasher);
  const { hashes, characters } = hasher;
  if (hashes.length === 0) return noPrefixes;
  const tokensPerCharacter = promptTokens / characters;
  const { ends: messageHashes, endCharacters } = hasher;
  return {
    hashes,
    tokens: hashes.map((_, index) => ends[index]! * tokensPerCharacter),
    messages: { hashes: messageHashes, tokens: endCharacters.map((end) => end * tokensPerCharacter) },
  };
}

/**
 * Returns a hash of a conversation up to its first answer and up to the end of each later message, so that a prompt is known again where a
 * later one goes on. Tools and reasoning are not part of it; the ids of calls are, which differ where two agents do the same. Empty without a conversation
 * and under zero data retention. `scope` and `salt` are part of each hash, of 53 bits.
 */
export function turnsOf(
  { prompt, retain }: { readonly prompt: Prompt; readonly retain: boolean },
  scope: string,
  salt: number,
): readonly number[] {
  if (prompt.type !== 'messages' || !retain) return [];
  const hasher = new TurnHasher(salt);
  hasher.text(scope);
  const hashes: number[] = [];
  for (const [index, message] of prompt.messages.entries()) {
    if (hashes.length > 0 || (message.role === 'assistant' && index > 0)) hashes.push(hasher.hash());
    if (message.role !== 'assistant') readMessage(message, hasher);
    else {
      // Its reasoning is left out of later prompts.
      readMessage({ ...message, reasoning: [] }, hasher);
      for (const { id } of message.toolCalls) hasher.text(id);
    }
  }
  return [...hashes, hasher.hash()];
}

function readPrompt({ prompt, tools }: EngineRequest, hasher: PrefixHasher): void {
  switch (prompt.type) {
    case 'messages':
      hasher.end(1);
      for (const { name, description = '', parameters } of tools) {
        hasher.mark('tool');
        hasher.text(name);
        hasher.text(description);
        hasher.text(JSON.stringify(parameters) ?? '');
      }
      // Without tools it is another end than that before them.
      hasher.end(2);
      for (const message of prompt.messages) {
        readMessage(message, hasher);
        hasher.end(3);
      }
      return;
    case 'texts':
      for (const text of prompt.prompts) {
        hasher.mark('prompt');
        hasher.text(text);
      }
      return;
    case 'token-ids':
      for (const ids of prompt.prompts) {
        hasher.mark('prompt');
        for (const id of ids) hasher.tokenId(id);
      }
  }
}

interface Hasher {
  /** Separates what follows from what was before. */
  mark(kind: string): void;
  text(text: string): void;
}

function readMessage(message: Message, hasher: Hasher): void {
  hasher.mark(message.role);
  if (message.role === 'assistant') for (const { text } of message.reasoning) hasher.text(text);
  for (const part of message.content) readPart(part, hasher);
  if (message.role !== 'assistant') return;
  for (const { name, arguments: written } of message.toolCalls) {
    hasher.mark('call');
    hasher.text(name);
    hasher.text(written);
  }
}

/** Samples of an image, and characters per sample: two images that differ do so nearly everywhere. */
const imageSamples = 16;
const sampleCharacters = 32;

function readPart(part: Part, hasher: Hasher): void {
  hasher.mark(part.type);
  switch (part.type) {
    case 'text':
      hasher.text(part.text);
      return;
    case 'image': {
      const { base64 } = part;
      hasher.text(String(base64.length));
      for (let sample = 0; sample < imageSamples; sample++) {
        const from = Math.floor((base64.length / imageSamples) * sample);
        hasher.text(base64.slice(from, from + sampleCharacters));
      }
      return;
    }
    case 'image-url':
      hasher.text(part.url);
      return;
    case 'file':
      hasher.text(part.fileId ?? part.url ?? part.filename ?? '');
  }
}

/** FNV-1a over UTF-16 code units, with the finalizer of MurmurHash3 where a prefix ends. */
class PrefixHasher implements Hasher {
  readonly hashes: number[] = [];
  #hash: number;
  /** Characters so far. */
  characters = 0;
  /** Hashes of everything up to the ends of parts, and their characters. */
  readonly ends: number[] = [];
  readonly endCharacters: number[] = [];
  /** Where each prefix ends, in characters; undefined: there are no more. */
  readonly #endAt: (index: number) => number | undefined;

  constructor(salt: number, endAt: (index: number) => number | undefined) {
    this.#hash = salt | 0;
    this.#endAt = endAt;
  }

  /** Starts counting: what was read until now is part of each hash, but of no length. */
  begin(): void {
    this.characters = 0;
    this.hashes.length = 0;
  }

  /** Ends a part of the prompt. Where no more prefixes end, nothing is hashed, so parts are no longer told apart. */
  end(kind: number): void {
    if (this.ends.length >= messageEndsMax || this.#endAt(this.hashes.length) === undefined) return;
    this.ends.push(finished(this.#hash ^ kind));
    this.endCharacters.push(this.characters);
  }

  mark(kind: string): void {
    this.text('\u0000');
    this.text(kind);
  }

  tokenId(id: number): void {
    this.text(`${id} `);
  }

  text(text: string): void {
    const { length } = text;
    let at = 0;
    while (at < length) {
      const end = this.#endAt(this.hashes.length);
      // Beyond the last end only the prompt's length counts.
      if (end === undefined) {
        this.characters += length - at;
        return;
      }
      const stop = Math.min(length, at + end - this.characters);
      let hash = this.#hash;
      this.characters += stop - at;
      for (; at < stop; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
      this.#hash = hash;
      if (this.characters === end) this.hashes.push(finished(hash));
    }
  }
}

/** Two such hashes: of one, some of a hundred thousand prompts would be alike. */
class TurnHasher implements Hasher {
  #hash: number;
  #other: number;

  constructor(salt: number) {
    this.#hash = salt | 0;
    this.#other = ~salt;
  }

  hash(): number {
    return (finished(this.#hash) >>> 0) * 0x200000 + (finished(this.#other) >>> 11);
  }

  mark(kind: string): void {
    this.text('\u0000');
    this.text(kind);
  }

  text(text: string): void {
    let [hash, other] = [this.#hash, this.#other];
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      hash = Math.imul(hash ^ unit, 0x01000193);
      other = Math.imul(other ^ unit, 0x01000193) + 1;
    }
    this.#hash = hash;
    this.#other = other;
  }
}

function finished(hash: number): number {
  let mixed = hash;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
