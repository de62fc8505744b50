import { open, type FileHandle } from 'node:fs/promises';
import {
  samplingDefaultsIn,
  type DefaultableName,
  type SamplingDefaults,
} from '../../../generation/sampling-defaults.ts';
import { ModelRefused } from './model-refused.ts';

/** What is known about a model file without loading it. */
export interface GgufHeader {
  /** Size of all files of a split model together. */
  readonly fileBytes: number;
  readonly architecture: string;
  /** Training length in tokens; `undefined` if the file does not state it. */
  readonly contextLength: number | undefined;
  /** Keys and values of one token in all layers, two bytes each: 23,040 for SmolLM2-135M. 0 if there are none. */
  readonly cacheBytesPerToken: number;
  readonly vocabularySize: number;
  readonly hasChatTemplate: boolean;
  /** `undefined` also for a template longer than the maximum. */
  readonly chatTemplate: string | undefined;
  readonly tensorCount: number;
  /** What the file recommends for fields that a request leaves open. */
  readonly samplingDefaults: SamplingDefaults;
  /** How an embedding model combines the vectors of an input's tokens into one; `undefined`: the file does not say. */
  readonly pooling: Pooling | undefined;
  /** Each token sees only those before it; embedding models mostly see the whole input. */
  readonly isCausal: boolean;
  /** The model ends in a classifier, which scores instead of writing. */
  readonly hasClassifier: boolean;
  /** Dimensions of a layer, and the number of layers; 0 where the file does not say. */
  readonly shape: {
    readonly layers: number;
    readonly width: number;
    readonly innerWidth: number;
    readonly heads: number;
  };
}

/** llama_pooling_type in llama.h */
const poolings = ['none', 'mean', 'cls', 'last', 'rank'] as const;
export type Pooling = (typeof poolings)[number];

/**
 * Reads the header of a GGUF file and checks everything that llama.cpp trusts, so that a truncated or foreign file is refused with a
 * message instead of crashing the child. Throws `ModelRefused`, or the system's error when the file cannot be read.
 *
 * It reads from front to back in chunks of 256 KiB and keeps a few numbers, so neither its memory nor its time depends on what the file
 * claims: every count is bounded, every length must fit into the rest of the file, and the event loop runs between chunks.
 */
export async function readGgufHeader(path: string): Promise<GgufHeader> {
  const { header, splitCount } = await withReader(path, readHeader);
  if (splitCount <= 1) return header;
  const [, stem, number, count] = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/i.exec(path) ?? [];
  if (stem === undefined || Number(number) !== 1 || Number(count) !== splitCount)
    throw new ModelRefused(
      `it is one of ${splitCount} files; the first is to be named as …-00001-of-${nameNumber(splitCount)}.gguf`,
    );
  let { fileBytes, tensorCount, hasClassifier } = header;
  for (let part = 2; part <= splitCount; part++) {
    const further = await withReader(`${stem}-${nameNumber(part)}-of-${count}.gguf`, readPart);
    fileBytes += further.fileBytes;
    tensorCount += further.tensorCount;
    hasClassifier ||= further.hasClassifier;
  }
  return { ...header, fileBytes, tensorCount, hasClassifier };
}

const nameNumber = (part: number): string => String(part).padStart(5, '0');

async function withReader<Value>(path: string, read: (reader: Reader) => Promise<Value>): Promise<Value> {
  const file = await open(path, 'r');
  try {
    const stat = await file.stat();
    if (!stat.isFile()) throw new ModelRefused('it is not a file');
    return await read(new Reader(file, stat.size));
  } finally {
    await file.close();
  }
}

async function readHeader(reader: Reader): Promise<{ readonly header: GgufHeader; readonly splitCount: number }> {
  const { metadata, tensorCount, splitCount, hasClassifier } = await readTables(reader);
  const architecture = metadata.get('general.architecture');
  if (typeof architecture !== 'string' || architecture === '')
    throw new ModelRefused('it does not state its architecture');
  if (architecture === 'clip') throw new ModelRefused('it is the image part of a model, not a model');
  const vocabulary = metadata.get('tokenizer.ggml.tokens');
  if (!(vocabulary instanceof Elements) || vocabulary.count === 0) throw new ModelRefused('it has no vocabulary');
  const contextLength = metadata.get(`${architecture}.context_length`);
  const pooling = metadata.get(`${architecture}.pooling_type`);
  const number = numberOf(metadata, architecture);
  const template = metadata.get('tokenizer.chat_template');
  const header = {
    fileBytes: reader.fileBytes,
    architecture,
    contextLength: isCount(contextLength) ? contextLength : undefined,
    cacheBytesPerToken: cacheBytesPerToken(metadata, architecture),
    vocabularySize: vocabulary.count,
    hasChatTemplate: template !== undefined,
    chatTemplate: typeof template === 'string' && template !== '' ? template : undefined,
    tensorCount,
    samplingDefaults: samplingDefaultsIn((name) => shortest(metadata.get(`general.sampling.${samplingKeys[name]}`))),
    pooling: typeof pooling === 'number' ? poolings[pooling] : undefined,
    isCausal: metadata.get(`${architecture}.attention.causal`) !== 0,
    hasClassifier,
    shape: {
      layers: number('block_count'),
      width: number('embedding_length'),
      innerWidth: number('feed_forward_length'),
      heads: number('attention.head_count'),
    },
  };
  return { header, splitCount };
}

/** Reads a further file of a split model, which has tensors and little else. */
async function readPart(reader: Reader): Promise<Pick<GgufHeader, 'fileBytes' | 'tensorCount' | 'hasClassifier'>> {
  const { tensorCount, hasClassifier } = await readTables(reader);
  return { fileBytes: reader.fileBytes, tensorCount, hasClassifier };
}

/**
 * Checks a LoRA as `readGgufHeader` checks a model, and that it is one for the model of this header. Throws `ModelRefused`, or the
 * system's error when the file cannot be read. Resolves with its size in bytes.
 */
export async function checkGgufAdapter(path: string, { architecture }: GgufHeader): Promise<number> {
  const { metadata, fileBytes } = await withReader(path, async (reader) => ({
    ...(await readTables(reader)),
    fileBytes: reader.fileBytes,
  }));
  if (metadata.get('general.type') !== 'adapter' || metadata.get('adapter.type') !== 'lora')
    throw new ModelRefused('its adapter is no LoRA');
  const made = metadata.get('general.architecture');
  if (made !== architecture)
    throw new ModelRefused(`its adapter is for the architecture "${String(made)}", and the model is "${architecture}"`);
  return fileBytes;
}

async function readTables(reader: Reader) {
  if (reader.fileBytes < fixedBytes)
    throw new ModelRefused(`it has ${reader.fileBytes} bytes, too few for a GGUF file`);
  await reader.need(fixedBytes);
  if (reader.uint32() !== magic) throw new ModelRefused('it is not a GGUF file');
  const version = reader.uint32();
  if (version !== 2 && version !== 3) {
    throw new ModelRefused(
      version === 0x02000000 || version === 0x03000000
        ? 'it is a GGUF file for big-endian computers'
        : `it has version ${version} of GGUF, and only 2 and 3 are supported`,
    );
  }
  const tensorCount = reader.count('tensors', tensorsMax);
  const entryCount = reader.count('entries', entriesMax);
  const metadata = await readMetadata(reader, entryCount);
  const count = metadata.get('split.count');
  const splitCount = isCount(count) ? count : 1;
  // The first of several files may have no tensors.
  if (tensorCount === 0 && splitCount === 1) throw new ModelRefused('it has no tensors');
  if (splitCount > splitsMax) throw new ModelRefused(`it claims to be one of ${splitCount} files`);
  const hasClassifier = await checkTensors(reader, tensorCount, alignmentOf(metadata));
  return { metadata, tensorCount, splitCount, hasClassifier };
}

/** The keys as llama.cpp's converter writes them from a model's `generation_config.json` (llama.cpp pull request 17120). */
const samplingKeys: Readonly<Record<DefaultableName, string>> = {
  temperature: 'temp',
  top_p: 'top_p',
  top_k: 'top_k',
  min_p: 'min_p',
  repetition_penalty: 'penalty_repeat',
};

/** Returns a 32-bit number as it was written in decimal: 0.2, not 0.20000000298. */
const shortest = (value: Kept | undefined): unknown =>
  typeof value === 'number' ? Number(value.toPrecision(7)) : value;

/** Numbers, short texts and short lists of numbers are kept; for anything longer, only its existence and length. */
type Kept = number | string | Elements;

class Elements {
  readonly count: number;
  readonly numbers: readonly number[];
  constructor(count: number, numbers: readonly number[]) {
    this.count = count;
    this.numbers = numbers;
  }
}

async function readMetadata(reader: Reader, entryCount: number): Promise<ReadonlyMap<string, Kept>> {
  const metadata = new Map<string, Kept>();
  for (let entry = 0; entry < entryCount; entry++) {
    const key = await reader.text(keyBytesMax);
    if (key === undefined) throw new ModelRefused(`it has a key of more than ${keyBytesMax} bytes`);
    if (metadata.has(key)) throw new ModelRefused('it has a duplicate key');
    await reader.need(4);
    const bytesMax = key === 'tokenizer.chat_template' ? templateBytesMax : keptTextBytesMax;
    metadata.set(key, await readValue(reader, reader.uint32(), bytesMax));
  }
  return metadata;
}

async function readValue(reader: Reader, type: number, textBytesMax: number): Promise<Kept> {
  if (type === valueType.string) return (await reader.text(textBytesMax)) ?? '';
  if (type !== valueType.array) return await readNumber(reader, type);
  await reader.need(12);
  const elementType = reader.uint32();
  const count = reader.count('elements in a list', Number.MAX_SAFE_INTEGER);
  if (elementType === valueType.array) throw new ModelRefused('it has a list of lists');
  if (elementType === valueType.string) {
    // Each text takes at least eight bytes, so a count that the file cannot hold fails immediately instead of after a long time.
    reader.mustHold(count * 8);
    await reader.skipTexts(count);
    return new Elements(count, []);
  }
  const bytes = numberBytes(elementType);
  reader.mustHold(count * bytes);
  const numbers: number[] = [];
  while (numbers.length < Math.min(count, keptNumbersMax)) numbers.push(await readNumber(reader, elementType));
  await reader.skip((count - numbers.length) * bytes);
  return new Elements(count, numbers);
}

async function readNumber(reader: Reader, type: number): Promise<number> {
  const bytes = numberBytes(type);
  await reader.need(bytes);
  switch (type) {
    case valueType.float32:
    case valueType.float64:
      return reader.float(bytes);
    case valueType.int8:
    case valueType.int16:
    case valueType.int32:
    case valueType.int64:
      return reader.integer(bytes, true);
    default:
      return reader.integer(bytes, false);
  }
}

function numberBytes(type: number): number {
  switch (type) {
    case valueType.uint8:
    case valueType.int8:
    case valueType.bool:
      return 1;
    case valueType.uint16:
    case valueType.int16:
      return 2;
    case valueType.uint32:
    case valueType.int32:
    case valueType.float32:
      return 4;
    case valueType.uint64:
    case valueType.int64:
    case valueType.float64:
      return 8;
    default:
      throw new ModelRefused(`it has a value of the unknown type ${type}`);
  }
}

function alignmentOf(metadata: ReadonlyMap<string, Kept>): number {
  const alignment = metadata.get('general.alignment') ?? 32;
  if (isCount(alignment) && alignment >= 8 && alignment <= 2 ** 20 && (alignment & (alignment - 1)) === 0)
    return alignment;
  throw new ModelRefused('its alignment is not a power of two');
}

/**
 * Checks that every tensor lies inside the file: llama.cpp maps the file and reads where the table points. Returns whether one of them
 * belongs to a classifier.
 */
async function checkTensors(reader: Reader, count: number, alignment: number): Promise<boolean> {
  let end = 0;
  let hasClassifier = false;
  for (let tensor = 0; tensor < count; tensor++) {
    const name = await reader.text(keyBytesMax);
    if (name === undefined) throw new ModelRefused('it has a tensor with a very long name');
    hasClassifier ||= name === 'cls.weight' || name === 'cls.output.weight';
    await reader.need(4);
    const dimensions = reader.uint32();
    if (dimensions < 1 || dimensions > 4) throw new ModelRefused(`it has a tensor of ${dimensions} dimensions`);
    await reader.need(dimensions * 8 + 12);
    const sides = Array.from({ length: dimensions }, () => reader.integer(8, false));
    const type = reader.uint32();
    const offset = reader.integer(8, false);
    const elements = sides.reduce((product, side) => product * side, 1);
    if (!sides.every(isCount) || elements > Number.MAX_SAFE_INTEGER)
      throw new ModelRefused('it has a tensor of impossible size');
    if (offset % alignment !== 0) throw new ModelRefused('it has a tensor at an unaligned offset');
    const [blockElements, blockBytes] = blockOf.get(type) ?? [1, 0];
    if ((sides[0] ?? 0) % blockElements !== 0) throw new ModelRefused('it has a tensor of impossible size');
    end = Math.max(end, offset + (elements / blockElements) * blockBytes);
  }
  const start = Math.ceil(reader.position / alignment) * alignment;
  if (start + end > reader.fileBytes)
    throw new ModelRefused(`it is truncated: it has ${reader.fileBytes} bytes and its tensors need ${start + end}`);
  return hasClassifier;
}

/** Reads the counts that the file states for its architecture; 0 where it states none. */
function numberOf(metadata: ReadonlyMap<string, Kept>, architecture: string): (name: string) => number {
  return (name) => {
    const value = metadata.get(`${architecture}.${name}`);
    return isCount(value) ? value : 0;
  };
}

function cacheBytesPerToken(metadata: ReadonlyMap<string, Kept>, architecture: string): number {
  const number = numberOf(metadata, architecture);
  const layers = number('block_count');
  const heads = number('attention.head_count');
  const width = heads === 0 ? 0 : number('embedding_length') / heads;
  const perHead = (number('attention.key_length') || width) + (number('attention.value_length') || width);
  const keyHeads = metadata.get(`${architecture}.attention.head_count_kv`);
  const headsInAll =
    keyHeads instanceof Elements
      ? keyHeads.numbers.reduce((sum, count) => sum + (isCount(count) ? count : 0), 0)
      : (number('attention.head_count_kv') || heads) * layers;
  return headsInAll * perHead * 2;
}

/** Returns whether a value is an exact whole number above zero. */
function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0;
}

/** A window of the file. `need` reads bytes into it, the other methods take them out. */
class Reader {
  readonly fileBytes: number;
  readonly #file: FileHandle;
  #window = Buffer.alloc(0);
  /** Offset of the window in the file, and of the next byte in the window. */
  #windowStart = 0;
  #at = 0;

  constructor(file: FileHandle, fileBytes: number) {
    this.#file = file;
    this.fileBytes = fileBytes;
  }

  get position(): number {
    return this.#windowStart + this.#at;
  }

  mustHold(bytes: number): void {
    if (!(bytes <= this.fileBytes - this.position)) throw new ModelRefused('it is truncated in its header');
    if (this.position + bytes > headerBytesMax)
      throw new ModelRefused(`its header has more than ${headerBytesMax} bytes`);
  }

  async need(bytes: number): Promise<void> {
    if (this.#window.length - this.#at >= bytes) return;
    this.mustHold(bytes);
    this.#windowStart = this.position;
    this.#at = 0;
    const window = Buffer.alloc(Math.min(Math.max(bytes, windowBytes), this.fileBytes - this.#windowStart));
    let filled = 0;
    while (filled < window.length) {
      const { bytesRead } = await this.#file.read(window, filled, window.length - filled, this.#windowStart + filled);
      if (bytesRead === 0) throw new ModelRefused('it was truncated while it was read');
      filled += bytesRead;
    }
    this.#window = window;
  }

  async skip(bytes: number): Promise<void> {
    const left = this.#window.length - this.#at;
    if (bytes <= left) {
      this.#at += bytes;
      return;
    }
    this.mustHold(bytes);
    this.#windowStart = this.position + bytes;
    this.#window = Buffer.alloc(0);
    this.#at = 0;
  }

  /** Reads a text of at most `bytesMax` bytes; a longer one is skipped. */
  async text(bytesMax: number): Promise<string | undefined> {
    await this.need(8);
    const bytes = this.integer(8, false);
    this.mustHold(bytes);
    if (bytes > bytesMax) {
      await this.skip(bytes);
      return undefined;
    }
    await this.need(bytes);
    this.#at += bytes;
    return this.#window.toString('utf8', this.#at - bytes, this.#at);
  }

  /** Skips texts. A vocabulary has up to 300,000: awaiting each one, even when buffered, would cost more than reading it. */
  async skipTexts(count: number): Promise<void> {
    for (let text = 0; text < count; text++) {
      if (this.#window.length - this.#at < 8) await this.need(8);
      const bytes = this.integer(8, false);
      if (bytes <= this.#window.length - this.#at) this.#at += bytes;
      else await this.skip(bytes);
    }
  }

  count(what: string, most: number): number {
    const count = this.integer(8, false);
    if (count > most) throw new ModelRefused(`it claims to have ${count} ${what}`);
    return count;
  }

  uint32(): number {
    return this.integer(4, false);
  }

  /** Reads an integer. Numbers beyond 2⁵³ lose their last digits, which does not matter for any bound. */
  integer(bytes: number, signed: boolean): number {
    const at = this.#at;
    this.#at += bytes;
    if (bytes === 8) return Number(signed ? this.#window.readBigInt64LE(at) : this.#window.readBigUInt64LE(at));
    return signed ? this.#window.readIntLE(at, bytes) : this.#window.readUIntLE(at, bytes);
  }

  float(bytes: number): number {
    const at = this.#at;
    this.#at += bytes;
    return bytes === 4 ? this.#window.readFloatLE(at) : this.#window.readDoubleLE(at);
  }
}

const magic = 0x46554747;
/** Magic, version and two counts. */
const fixedBytes = 24;
const windowBytes = 262_144;
/** The largest known vocabularies with their merges take about 20 MB. */
const headerBytesMax = 268_435_456;
const tensorsMax = 65_536;
const entriesMax = 65_536;
const keyBytesMax = 65_535;
const keptTextBytesMax = 256;
/** The longest known templates have about 20 kB. */
const templateBytesMax = 1_048_576;
const splitsMax = 256;
const keptNumbersMax = 1024;

/** gguf_type in gguf.h */
const valueType = {
  uint8: 0,
  int8: 1,
  uint16: 2,
  int16: 3,
  uint32: 4,
  int32: 5,
  float32: 6,
  bool: 7,
  string: 8,
  array: 9,
  uint64: 10,
  int64: 11,
  float64: 12,
} as const;

/** ggml_type in ggml.h: elements and bytes of a block. For types not listed, only the beginning of a tensor is checked. */
const blockOf: ReadonlyMap<number, readonly [elements: number, bytes: number]> = new Map([
  [0, [1, 4]], // F32
  [1, [1, 2]], // F16
  [2, [32, 18]], // Q4_0
  [3, [32, 20]], // Q4_1
  [6, [32, 22]], // Q5_0
  [7, [32, 24]], // Q5_1
  [8, [32, 34]], // Q8_0
  [9, [32, 36]], // Q8_1
  [10, [256, 84]], // Q2_K
  [11, [256, 110]], // Q3_K
  [12, [256, 144]], // Q4_K
  [13, [256, 176]], // Q5_K
  [14, [256, 210]], // Q6_K
  [15, [256, 292]], // Q8_K
  [16, [256, 66]], // IQ2_XXS
  [17, [256, 74]], // IQ2_XS
  [18, [256, 98]], // IQ3_XXS
  [19, [256, 50]], // IQ1_S
  [20, [32, 18]], // IQ4_NL
  [21, [256, 110]], // IQ3_S
  [22, [256, 82]], // IQ2_S
  [23, [256, 136]], // IQ4_XS
  [24, [1, 1]], // I8
  [25, [1, 2]], // I16
  [26, [1, 4]], // I32
  [27, [1, 8]], // I64
  [28, [1, 8]], // F64
  [29, [256, 56]], // IQ1_M
  [30, [1, 2]], // BF16
  [34, [256, 54]], // TQ1_0
  [35, [256, 66]], // TQ2_0
  [39, [32, 17]], // MXFP4
]);
