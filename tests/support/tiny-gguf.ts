import { writeFileSync } from 'node:fs';

/**
 * What a tiny model looks like. Same options, same bytes.
 *
 * A scripted model is a bigram automaton: attention and feed-forward layers add nothing, and the output weights make every
 * token of a chain point at the next one, so real llama.cpp says a known text at any temperature. The first entry of a chain
 * is the last token of the prompt (`assistant\n` for the built-in template); every other entry becomes one token of the
 * vocabulary. A token may stand in several places only when its successor is the same everywhere: a bigram has no memory.
 */
export interface TinyGgufOptions {
  readonly script?: readonly (readonly string[])[];
  /** Byte-level BPE as in Qwen and Llama 3, or SentencePiece as in Llama 2. */
  readonly tokenizer?: 'bpe' | 'spm';
  readonly contextLength?: number;
  /** Width of the embedding; more dimensions and layers make a slower model. */
  readonly dimensions?: number;
  readonly layers?: number;
  readonly merges?: number;
  readonly seed?: number;
  /** Jinja text; `null` writes none. */
  readonly chatTemplate?: string | null;
  /** Further tokens of the type "user defined", which llama.cpp finds in any text. */
  readonly userDefined?: readonly string[];
  /** Further tokens of the type "control", which have no text of their own; byte-level BPE only. */
  readonly controls?: readonly string[];
  /** `llama.pooling_type`, which makes it a model of embeddings; 3 takes the last token's vector. */
  readonly poolingType?: number;
  /** `general.sampling.*`, by the names after it. */
  readonly sampling?: Readonly<Record<string, number>>;
}

/** Writes a tiny llama-architecture GGUF (about 300 kB, a few hundredths of a second), random or scripted. */
export function writeTinyGguf(path: string, options: TinyGgufOptions = {}): void {
  const vocabulary = options.tokenizer === 'spm' ? spmVocabulary(options) : bpeVocabulary(options);
  writeFileSync(path, encodeGguf(metadataOf(vocabulary, options), tensorsOf(vocabulary, options)));
}

/** The same in several files, as `llama-gguf-split` writes them; returns their paths, the first one first. */
export function writeSplitTinyGguf(stem: string, parts: number, options: TinyGgufOptions = {}): readonly string[] {
  const vocabulary = options.tokenizer === 'spm' ? spmVocabulary(options) : bpeVocabulary(options);
  const tensors = tensorsOf(vocabulary, options);
  const each = Math.ceil(tensors.length / parts);
  const number = (part: number): string => String(part).padStart(5, '0');
  return Array.from({ length: parts }, (_, index) => {
    const metadata = index === 0 ? metadataOf(vocabulary, options) : new Map<string, Value>();
    metadata.set('split.no', { type: 'u16', value: index });
    metadata.set('split.count', { type: 'u16', value: parts });
    metadata.set('split.tensors.count', { type: 'i32', value: tensors.length });
    const path = `${stem}-${number(index + 1)}-of-${number(parts)}.gguf`;
    writeFileSync(path, encodeGguf(metadata, tensors.slice(index * each, (index + 1) * each)));
    return path;
  });
}

/**
 * A LoRA of rank 1 for a scripted model of the same options: behind `from`, the model says `to` instead, and goes on from there.
 */
export function writeTinyLora(path: string, options: TinyGgufOptions, from: string, to: string): void {
  const { dimensions = 64 } = options;
  const vocabulary = bpeVocabulary(options);
  const [embedding] = tensorsOf(vocabulary, options);
  const idOf = (piece: string): number => {
    const [chain, place] = (options.script ?? [])
      .map((pieces, index) => [index, pieces.indexOf(piece)] as const)
      .find(([, found]) => found !== -1) ?? [-1, -1];
    return vocabulary.chains[chain]?.[place] ?? -1;
  };
  const [current, next] = [idOf(from), idOf(to)];
  if (current < 0 || next < 0) throw new Error(`not in the script: ${from}, ${to}`);
  // Twice the weight by which a chain points at its successor (`pointAtSuccessors`).
  const a = embedding!.data
    .slice(current * dimensions, (current + 1) * dimensions)
    .map((part) => (48 / dimensions) * part);
  const b = new Float32Array(vocabulary.tokens.length);
  b[next] = 1;
  const text = (value: string): Value => ({ type: 'string', value });
  writeFileSync(
    path,
    encodeGguf(
      new Map<string, Value>([
        ['general.type', text('adapter')],
        ['general.architecture', text('llama')],
        ['adapter.type', text('lora')],
        ['adapter.lora.alpha', { type: 'f32', value: 1 }],
      ]),
      [
        { name: 'output.weight.lora_a', shape: [dimensions, 1], data: a },
        { name: 'output.weight.lora_b', shape: [1, vocabulary.tokens.length], data: b },
      ],
    ),
  );
}

/** ChatML with tool calls and tool results, close to what Qwen models carry. */
export const chatMlTemplate = `{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.reasoning_content is string and message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif %}
{{- content }}
{%- for tool_call in message.tool_calls or [] %}
{%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
{{- '<tool_call>\\n{"name": "' }}{{- tool_call.function.name }}{{- '", "arguments": ' }}
{%- if tool_call.function.arguments is string %}{{- tool_call.function.arguments }}{%- else %}{{- tool_call.function.arguments | tojson }}{%- endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or (messages[loop.index0 - 1].role != 'tool') %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
{%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`;

export const tokenType = { normal: 1, unknown: 2, control: 3, userDefined: 4, byte: 6 } as const;

interface Vocabulary {
  readonly model: 'gpt2' | 'llama';
  readonly tokens: readonly string[];
  readonly types: readonly number[];
  readonly scores: readonly number[];
  readonly merges: readonly string[];
  readonly chains: readonly (readonly number[])[];
  readonly bos: number;
  readonly eos: number;
}

const bpeControls = ['<|endoftext|>', '<|im_start|>', '<|im_end|>'];
const bpeUserDefined = ['<think>', '</think>', '<tool_call>', '</tool_call>'];
const corpus = `The quick brown fox jumps over the lazy dog while a small model writes plain words on the page. A service takes a
request, checks the key, counts the tokens and sends the answer back as a stream of events. {"name": "get_weather", "arguments":
{"city": "Paris", "unit": "celsius"}} When the user asks a question the assistant thinks first and then gives a short answer. The
system message sets the tone. The tool message holds a result. Numbers such as 0 1 2 3 10 20 42 and 1024 come up often.`;

function bpeVocabulary(options: TinyGgufOptions): Vocabulary {
  const alphabet = byteAlphabet();
  const encode = (text: string) => [...Buffer.from(text, 'utf8')].map((byte) => alphabet[byte]).join('');
  const ids = new Map<string, number>();
  const types: number[] = [];
  const add = (token: string, type: number): number => {
    const known = ids.get(token);
    if (known !== undefined) return known;
    ids.set(token, types.length);
    types.push(type);
    return types.length - 1;
  };
  for (const byte of alphabet) add(byte, tokenType.normal);
  const merges = learnMerges(corpus, encode, options.merges ?? 200);
  for (const merge of merges) add(merge.replace(' ', ''), tokenType.normal);
  for (const token of [...bpeUserDefined, ...(options.userDefined ?? [])]) add(token, tokenType.userDefined);
  const controls = [...bpeControls, ...(options.controls ?? [])];
  const special = new Set([...controls, ...bpeUserDefined, ...(options.userDefined ?? [])]);
  for (const chain of options.script ?? []) {
    for (const [index, piece] of chain.entries()) {
      if (special.has(piece)) continue;
      // The trigger must survive the tokenizer as one token, so it is found before any merging.
      if (index === 0 && !ids.has(encode(piece))) {
        special.add(piece);
        add(piece, tokenType.userDefined);
      } else add(encode(piece), tokenType.normal);
    }
  }
  for (const token of controls) add(token, tokenType.control);
  const idOf = (piece: string): number => ids.get(special.has(piece) ? piece : encode(piece)) ?? -1;
  const chains = (options.script ?? []).map((chain) => chain.map(idOf));
  const tokens = [...ids.keys()];
  return {
    model: 'gpt2',
    tokens,
    types,
    scores: [],
    merges,
    chains,
    bos: idOf('<|endoftext|>'),
    eos: idOf('<|im_end|>'),
  };
}

/** Pieces by score, as SentencePiece has them. `<s` is one of them, so that merging alone can spell the control token `<s>`. */
function spmVocabulary(options: TinyGgufOptions): Vocabulary {
  const tokens = ['<unk>', '<s>', '</s>'];
  const types: number[] = [tokenType.unknown, tokenType.control, tokenType.control];
  const scores = [0, 0, 0];
  for (let byte = 0; byte < 256; byte++) {
    tokens.push(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
    types.push(tokenType.byte);
    scores.push(0);
  }
  const pieces = [
    '<s',
    '\u2581',
    '\u2581t',
    '\u2581the',
    'he',
    'th',
    'in',
    'er',
    'an',
    'on',
    '\u2581a',
    'INST',
    'IN',
    'ST',
    '[/',
    '\n',
  ];
  for (let code = 33; code < 127; code++) pieces.push(String.fromCharCode(code));
  for (const piece of new Set(pieces)) {
    tokens.push(piece);
    types.push(tokenType.normal);
    scores.push(-tokens.length);
  }
  for (const token of options.userDefined ?? []) {
    tokens.push(token);
    types.push(tokenType.userDefined);
    scores.push(0);
  }
  const chains = (options.script ?? []).map((chain) => chain.map((piece) => tokens.indexOf(piece)));
  return { model: 'llama', tokens, types, scores, merges: [], chains, bos: 1, eos: 2 };
}

/** The printable characters that stand for the 256 bytes in GPT-2 vocabularies. */
function byteAlphabet(): string[] {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCodePoint(printable ? byte : next++);
  });
}

function learnMerges(text: string, encode: (text: string) => string, count: number): string[] {
  const merges: string[] = [];
  let words = (text.match(/\s?\p{L}+|\s?\p{N}|\s?[^\s\p{L}\p{N}]+|\s+/gu) ?? []).map((word) => [...encode(word)]);
  while (merges.length < count) {
    const pairs = new Map<string, number>();
    for (const word of words) {
      for (let i = 0; i + 1 < word.length; i++) {
        const pair = `${word[i]} ${word[i + 1]}`;
        pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
      }
    }
    const best = [...pairs].reduce<[string, number] | undefined>(
      (top, pair) => (top === undefined || pair[1] > top[1] || (pair[1] === top[1] && pair[0] < top[0]) ? pair : top),
      undefined,
    );
    if (best === undefined || best[1] < 2) return merges;
    merges.push(best[0]);
    words = words.map((word) => joinPair(word, best[0].replace(' ', '')));
  }
  return merges;
}

function joinPair(word: readonly string[], joined: string): string[] {
  const result: string[] = [];
  for (let i = 0; i < word.length; i++) {
    if (`${word[i]}${word[i + 1] ?? ''}` === joined && i + 1 < word.length) result.push(word[i++] + (word[i] ?? ''));
    else result.push(word[i] ?? '');
  }
  return result;
}

export interface Tensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

const heads = 4;
const keyHeads = 2;

function tensorsOf(vocabulary: Vocabulary, options: TinyGgufOptions): Tensor[] {
  const random = randomNumbers(options.seed ?? 1);
  const dimensions = options.dimensions ?? 64;
  const size = vocabulary.tokens.length;
  const scripted = options.script !== undefined;
  const matrix = (name: string, columns: number, rows: number, deviation: number): Tensor => {
    const data = new Float32Array(columns * rows);
    for (let i = 0; i < data.length; i++) data[i] = deviation === 0 ? 0 : random.normal() * deviation;
    return { name, shape: [columns, rows], data };
  };
  const ones = (name: string): Tensor => ({ name, shape: [dimensions], data: new Float32Array(dimensions).fill(1) });

  const embedding = new Float32Array(size * dimensions);
  for (let i = 0; i < embedding.length; i++)
    embedding[i] = scripted ? (random.uniform() < 0.5 ? -1 : 1) : random.normal();
  const output = matrix('output.weight', dimensions, size, scripted ? 0.02 : 1.5 / Math.sqrt(dimensions));
  if (scripted) pointAtSuccessors(vocabulary, embedding, output.data, dimensions);
  else preferPlainText(vocabulary, embedding, output.data, dimensions);

  const tensors = [
    { name: 'token_embd.weight', shape: [dimensions, size], data: embedding },
    ones('output_norm.weight'),
    output,
  ];
  const deviation = 1 / Math.sqrt(dimensions);
  const keyWidth = (dimensions / heads) * keyHeads;
  const out = scripted ? 0 : 1;
  for (let layer = 0; layer < (options.layers ?? 2); layer++) {
    const block = `blk.${layer}.`;
    tensors.push(
      ones(`${block}attn_norm.weight`),
      matrix(`${block}attn_q.weight`, dimensions, dimensions, deviation),
      matrix(`${block}attn_k.weight`, dimensions, keyWidth, deviation),
      matrix(`${block}attn_v.weight`, dimensions, keyWidth, deviation),
      matrix(`${block}attn_output.weight`, dimensions, dimensions, deviation * out),
      ones(`${block}ffn_norm.weight`),
      matrix(`${block}ffn_gate.weight`, dimensions, dimensions * 2, deviation),
      matrix(`${block}ffn_up.weight`, dimensions, dimensions * 2, deviation),
      matrix(`${block}ffn_down.weight`, dimensions * 2, dimensions, (deviation * out) / Math.SQRT2),
    );
  }
  return tensors;
}

/** logit(next) = ⟨output[next], embedding[current]⟩; embeddings of ±1 have length 1 after the norm, which so changes nothing. */
function pointAtSuccessors(
  vocabulary: Vocabulary,
  embedding: Float32Array,
  output: Float32Array,
  dimensions: number,
): void {
  const successors = new Map<number, number>();
  for (const chain of vocabulary.chains) {
    for (let i = 0; i + 1 < chain.length; i++) {
      const [current, next] = [chain[i] ?? -1, chain[i + 1] ?? -1];
      const known = successors.get(current);
      if (current < 0 || next < 0) throw new Error(`not a token of the vocabulary, in chain ${JSON.stringify(chain)}`);
      if (known !== undefined && known !== next) throw new Error(`${vocabulary.tokens[current]} has two successors`);
      if (known !== undefined) continue;
      successors.set(current, next);
      for (let k = 0; k < dimensions; k++) {
        output[next * dimensions + k] =
          (output[next * dimensions + k] ?? 0) + (24 / dimensions) * (embedding[current * dimensions + k] ?? 0);
      }
    }
  }
}

/** Dimension 0 is a constant that keeps single bytes outside ASCII and control tokens rare, so that random text is readable. */
function preferPlainText(
  vocabulary: Vocabulary,
  embedding: Float32Array,
  output: Float32Array,
  dimensions: number,
): void {
  for (let id = 0; id < vocabulary.tokens.length; id++) {
    const rawByte = vocabulary.model === 'gpt2' && id < 256 && (id < 32 || id > 126);
    embedding[id * dimensions] = 4;
    output[id * dimensions] = rawByte || vocabulary.types[id] === tokenType.control ? -6 : 0;
  }
}

export function randomNumbers(seed: number): { uniform(): number; normal(): number } {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  return { uniform, normal: () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()) };
}

export type Value =
  | { readonly type: 'u16' | 'u32' | 'i32' | 'f32'; readonly value: number }
  | { readonly type: 'bool'; readonly value: boolean }
  | { readonly type: 'string'; readonly value: string }
  | { readonly type: 'strings'; readonly value: readonly string[] }
  | { readonly type: 'i32s' | 'f32s'; readonly value: readonly number[] };

function metadataOf(vocabulary: Vocabulary, options: TinyGgufOptions): Map<string, Value> {
  const dimensions = options.dimensions ?? 64;
  const u32 = (value: number): Value => ({ type: 'u32', value });
  const text = (value: string): Value => ({ type: 'string', value });
  const metadata = new Map<string, Value>([
    ['general.architecture', text('llama')],
    ['general.name', text(options.script === undefined ? 'tiny-random' : 'tiny-scripted')],
    ['general.file_type', u32(0)],
    ['general.quantization_version', u32(2)],
    ['llama.context_length', u32(options.contextLength ?? 4096)],
    ['llama.embedding_length', u32(dimensions)],
    ['llama.block_count', u32(options.layers ?? 2)],
    ['llama.feed_forward_length', u32(dimensions * 2)],
    ['llama.attention.head_count', u32(heads)],
    ['llama.attention.head_count_kv', u32(keyHeads)],
    ['llama.attention.layer_norm_rms_epsilon', { type: 'f32', value: 1e-5 }],
    ['llama.rope.dimension_count', u32(dimensions / heads)],
    ['llama.rope.freq_base', { type: 'f32', value: 10000 }],
    ['llama.vocab_size', u32(vocabulary.tokens.length)],
    ['tokenizer.ggml.model', text(vocabulary.model)],
    ['tokenizer.ggml.tokens', { type: 'strings', value: vocabulary.tokens }],
    ['tokenizer.ggml.token_type', { type: 'i32s', value: vocabulary.types }],
    ['tokenizer.ggml.bos_token_id', u32(vocabulary.bos)],
    ['tokenizer.ggml.eos_token_id', u32(vocabulary.eos)],
    ['tokenizer.ggml.add_bos_token', { type: 'bool', value: vocabulary.model === 'llama' }],
  ]);
  if (vocabulary.model === 'gpt2') {
    metadata.set('tokenizer.ggml.pre', text('qwen2'));
    metadata.set('tokenizer.ggml.merges', { type: 'strings', value: vocabulary.merges });
  } else metadata.set('tokenizer.ggml.scores', { type: 'f32s', value: vocabulary.scores });
  const template = options.chatTemplate === undefined ? chatMlTemplate : options.chatTemplate;
  if (template !== null) metadata.set('tokenizer.chat_template', text(template));
  if (options.poolingType !== undefined) metadata.set('llama.pooling_type', u32(options.poolingType));
  for (const [key, value] of Object.entries(options.sampling ?? {}))
    metadata.set(`general.sampling.${key}`, key === 'top_k' ? { type: 'i32', value } : { type: 'f32', value });
  return metadata;
}

/** GGUF version 3: header, key-value pairs, tensor table, then the tensors, each aligned to 32 bytes. */
export function encodeGguf(metadata: ReadonlyMap<string, Value>, tensors: readonly Tensor[]): Buffer {
  const head = [Buffer.from('GGUF'), uint32(3), uint64(tensors.length), uint64(metadata.size)];
  for (const [key, value] of metadata) head.push(string(key), encodeValue(value));
  let offset = 0;
  for (const tensor of tensors) {
    head.push(string(tensor.name), uint32(tensor.shape.length), ...tensor.shape.map(uint64), uint32(0), uint64(offset));
    offset += tensor.data.byteLength + padding(tensor.data.byteLength).length;
  }
  const header = Buffer.concat(head);
  const blobs = tensors.flatMap(({ data }) => [
    Buffer.from(data.buffer, data.byteOffset, data.byteLength),
    padding(data.byteLength),
  ]);
  return Buffer.concat([header, padding(header.length), ...blobs]);
}

function encodeValue(value: Value): Buffer {
  switch (value.type) {
    case 'u16':
      return Buffer.concat([uint32(2), uint16(value.value)]);
    case 'u32':
      return Buffer.concat([uint32(4), uint32(value.value)]);
    case 'i32':
      return Buffer.concat([uint32(5), int32(value.value)]);
    case 'f32':
      return Buffer.concat([uint32(6), float32(value.value)]);
    case 'bool':
      return Buffer.concat([uint32(7), Buffer.from([value.value ? 1 : 0])]);
    case 'string':
      return Buffer.concat([uint32(8), string(value.value)]);
    case 'strings':
      return Buffer.concat([uint32(9), uint32(8), uint64(value.value.length), ...value.value.map(string)]);
    case 'i32s':
      return Buffer.concat([uint32(9), uint32(5), uint64(value.value.length), ...value.value.map(int32)]);
    case 'f32s':
      return Buffer.concat([uint32(9), uint32(6), uint64(value.value.length), ...value.value.map(float32)]);
  }
}

function written(size: number, write: (buffer: Buffer) => void): Buffer {
  const buffer = Buffer.alloc(size);
  write(buffer);
  return buffer;
}
const uint16 = (value: number) => written(2, (buffer) => buffer.writeUInt16LE(value));
const uint32 = (value: number) => written(4, (buffer) => buffer.writeUInt32LE(value));
const int32 = (value: number) => written(4, (buffer) => buffer.writeInt32LE(value));
const float32 = (value: number) => written(4, (buffer) => buffer.writeFloatLE(value));
const uint64 = (value: number) => written(8, (buffer) => buffer.writeBigUInt64LE(BigInt(value)));
const string = (value: string) => Buffer.concat([uint64(Buffer.byteLength(value)), Buffer.from(value, 'utf8')]);
const padding = (length: number) => Buffer.alloc((32 - (length % 32)) % 32);
