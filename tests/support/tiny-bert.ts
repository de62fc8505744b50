import { writeFileSync } from 'node:fs';
import { encodeGguf, randomNumbers, tokenType, type Tensor, type Value } from './tiny-gguf.ts';

/** A model that embeds or ranks, of the architecture that most of them have. Same options, same bytes. */
export interface TinyBertOptions {
  /** `rank`: with a classifier, as cross-encoders have. */
  readonly pooling?: 'mean' | 'cls' | 'rank' | undefined;
  /** The file states no pooling. */
  readonly statesPooling?: boolean;
  readonly contextLength?: number;
  readonly dimensions?: number;
  readonly layers?: number;
  readonly seed?: number;
}

/** Writes a BERT with random weights (about 300 kB): its vectors mean nothing, and are the same in every program. */
export function writeTinyBert(path: string, options: TinyBertOptions = {}): void {
  writeFileSync(path, encodeGguf(metadataOf(options), tensorsOf(options)));
}

const specials = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'];
const letters = [...'abcdefghijklmnopqrstuvwxyz0123456789'];
const words = ['the', 'quick', 'brown', 'fox', 'sky', 'is', 'blue', 'why', 'of', 'and', 'a', 'sea', 'green', 'grass'];
/** A piece that begins a word has the mark, one that continues it has not. */
const tokens = [
  ...specials,
  ...new Set([...words, ...letters, ...'.,;:!?()[]'].map((piece) => `\u2581${piece}`)),
  ...letters,
  'ing',
  'er',
];

const heads = 4;
const poolingTypes = { mean: 1, cls: 2, rank: 4 };

function metadataOf({ pooling = 'mean', statesPooling = true, ...options }: TinyBertOptions): Map<string, Value> {
  const { contextLength = 128, dimensions = 64, layers = 2 } = options;
  const u32 = (value: number): Value => ({ type: 'u32', value });
  const text = (value: string): Value => ({ type: 'string', value });
  return new Map<string, Value>([
    ['general.architecture', text('bert')],
    ['general.name', text('tiny-bert')],
    ['general.file_type', u32(0)],
    ['general.quantization_version', u32(2)],
    ['bert.context_length', u32(contextLength)],
    ['bert.embedding_length', u32(dimensions)],
    ['bert.block_count', u32(layers)],
    ['bert.feed_forward_length', u32(dimensions * 2)],
    ['bert.attention.head_count', u32(heads)],
    ['bert.attention.layer_norm_epsilon', { type: 'f32', value: 1e-12 }],
    ['bert.attention.causal', { type: 'bool', value: false }],
    ...(statesPooling ? ([['bert.pooling_type', u32(poolingTypes[pooling])]] as const) : []),
    ['tokenizer.ggml.model', text('bert')],
    ['tokenizer.ggml.tokens', { type: 'strings', value: tokens }],
    [
      'tokenizer.ggml.token_type',
      { type: 'i32s', value: tokens.map((_, id) => (id < specials.length ? tokenType.control : tokenType.normal)) },
    ],
    ['tokenizer.ggml.token_type_count', u32(2)],
    ['tokenizer.ggml.padding_token_id', u32(0)],
    ['tokenizer.ggml.unknown_token_id', u32(1)],
    ['tokenizer.ggml.cls_token_id', u32(2)],
    ['tokenizer.ggml.bos_token_id', u32(2)],
    ['tokenizer.ggml.seperator_token_id', u32(3)],
    ['tokenizer.ggml.eos_token_id', u32(3)],
    ['tokenizer.ggml.mask_token_id', u32(4)],
  ]);
}

function tensorsOf(options: TinyBertOptions): Tensor[] {
  const { contextLength = 128, dimensions = 64, layers = 2, seed = 1 } = options;
  const random = randomNumbers(seed);
  const filled = (name: string, shape: readonly number[], deviation: number, around = 0): Tensor => {
    const data = new Float32Array(shape.reduce((product, side) => product * side, 1));
    for (let index = 0; index < data.length; index++) data[index] = around + random.normal() * deviation;
    return { name, shape, data };
  };
  const affine = (name: string, from: number, to: number): Tensor[] => [
    filled(`${name}.weight`, [from, to], 1 / Math.sqrt(from)),
    filled(`${name}.bias`, [to], 0.1),
  ];
  const norm = (name: string): Tensor[] => [
    filled(`${name}.weight`, [dimensions], 0.1, 1),
    filled(`${name}.bias`, [dimensions], 0.1),
  ];
  return [
    filled('token_embd.weight', [dimensions, tokens.length], 1),
    filled('position_embd.weight', [dimensions, contextLength], 0.3),
    filled('token_types.weight', [dimensions, 2], 0.1),
    ...norm('token_embd_norm'),
    ...Array.from({ length: layers }, (_, layer) => `blk.${layer}`).flatMap((block) => [
      ...['attn_q', 'attn_k', 'attn_v', 'attn_output'].flatMap((name) =>
        affine(`${block}.${name}`, dimensions, dimensions),
      ),
      ...norm(`${block}.attn_output_norm`),
      ...affine(`${block}.ffn_up`, dimensions, dimensions * 2),
      ...affine(`${block}.ffn_down`, dimensions * 2, dimensions),
      ...norm(`${block}.layer_output_norm`),
    ]),
    ...(options.pooling === 'rank'
      ? [...affine('cls', dimensions, dimensions), ...affine('cls.output', dimensions, 1)]
      : []),
  ];
}
