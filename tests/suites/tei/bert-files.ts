/** A BERT of random weights in the files that Hugging Face's programs read: it says nothing, but always the same. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { mulberry32 } from '../../support/random.ts';

const size = 32;
const wide = 64;
const layers = 2;

/** Of special tokens, letters and digits, at the beginning of a word and inside. */
const vocabulary = [
  ...['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'],
  ...[...'abcdefghijklmnopqrstuvwxyz0123456789.,?!'].flatMap((sign) => [sign, `##${sign}`]),
];

/** Writes it into a folder, which is returned. `window`: in tokens. */
export function writeTinyBert(folder: string, purpose: 'embed' | 'rank', window: number): string {
  mkdirSync(join(folder, '1_Pooling'), { recursive: true });
  const write = (name: string, content: object): void => writeFileSync(join(folder, name), JSON.stringify(content));
  const ranks = purpose === 'rank';
  write('config.json', {
    architectures: [ranks ? 'BertForSequenceClassification' : 'BertModel'],
    model_type: 'bert',
    hidden_act: 'gelu',
    hidden_size: size,
    intermediate_size: wide,
    layer_norm_eps: 1e-12,
    max_position_embeddings: window,
    num_attention_heads: 2,
    num_hidden_layers: layers,
    pad_token_id: 0,
    type_vocab_size: 2,
    vocab_size: vocabulary.length,
    position_embedding_type: 'absolute',
    hidden_dropout_prob: 0,
    attention_probs_dropout_prob: 0,
    initializer_range: 0.02,
    ...(ranks ? { id2label: { 0: 'relevant' }, label2id: { relevant: 0 } } : {}),
  });
  write('tokenizer.json', tokenizer());
  write('tokenizer_config.json', { model_max_length: window, tokenizer_class: 'BertTokenizer' });
  if (!ranks)
    write(join('1_Pooling', 'config.json'), {
      word_embedding_dimension: size,
      pooling_mode_cls_token: false,
      pooling_mode_mean_tokens: true,
      pooling_mode_max_tokens: false,
      pooling_mode_mean_sqrt_len_tokens: false,
    });
  writeFileSync(join(folder, 'model.safetensors'), weights(ranks, window));
  return folder;
}

function tokenizer(): object {
  const special = (id: number): object => ({
    id,
    content: vocabulary[id],
    special: true,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
  });
  const mark = (id: string, type: number): object => ({ SpecialToken: { id, type_id: type } });
  const text = (id: string, type: number): object => ({ Sequence: { id, type_id: type } });
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [0, 1, 2, 3, 4].map(special),
    normalizer: {
      type: 'BertNormalizer',
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: null,
      lowercase: true,
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: {
      type: 'TemplateProcessing',
      single: [mark('[CLS]', 0), text('A', 0), mark('[SEP]', 0)],
      pair: [mark('[CLS]', 0), text('A', 0), mark('[SEP]', 0), text('B', 1), mark('[SEP]', 1)],
      special_tokens: Object.fromEntries(
        ['[CLS]', '[SEP]'].map((id) => [id, { id, ids: [vocabulary.indexOf(id)], tokens: [id] }]),
      ),
    },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    model: {
      type: 'WordPiece',
      unk_token: '[UNK]',
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
    },
  };
}

/** safetensors: the length of a header, the header, and the numbers in 32 bits, little-endian. */
function weights(ranks: boolean, window: number): Buffer {
  const random = mulberry32(11);
  const prefix = ranks ? 'bert.' : '';
  const header: Record<string, object> = {};
  const parts: Buffer[] = [];
  let offset = 0;
  const add = (name: string, shape: readonly number[], valueOf: () => number): void => {
    const values = Float32Array.from({ length: shape.reduce((product, one) => product * one, 1) }, valueOf);
    const bytes = Buffer.from(values.buffer);
    header[name] = { dtype: 'F32', shape, data_offsets: [offset, offset + bytes.length] };
    offset += bytes.length;
    parts.push(bytes);
  };
  const small = (): number => random() - 0.5;
  const dense = (name: string, from: number, to: number): void => {
    add(`${name}.weight`, [to, from], small);
    add(`${name}.bias`, [to], small);
  };
  const norm = (name: string): void => {
    add(`${name}.weight`, [size], () => 1);
    add(`${name}.bias`, [size], () => 0);
  };
  add(`${prefix}embeddings.word_embeddings.weight`, [vocabulary.length, size], small);
  add(`${prefix}embeddings.position_embeddings.weight`, [window, size], small);
  add(`${prefix}embeddings.token_type_embeddings.weight`, [2, size], small);
  norm(`${prefix}embeddings.LayerNorm`);
  for (let layer = 0; layer < layers; layer++) {
    const at = `${prefix}encoder.layer.${layer}`;
    for (const name of ['query', 'key', 'value']) dense(`${at}.attention.self.${name}`, size, size);
    dense(`${at}.attention.output.dense`, size, size);
    norm(`${at}.attention.output.LayerNorm`);
    dense(`${at}.intermediate.dense`, size, wide);
    dense(`${at}.output.dense`, wide, size);
    norm(`${at}.output.LayerNorm`);
  }
  dense(`${prefix}pooler.dense`, size, size);
  if (ranks) dense('classifier', size, 1);
  const head = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  return Buffer.concat([length, head, ...parts]);
}
