import type { Compute, LayerNeeds } from './compute.ts';
import type { GgufHeader } from './gguf-header.ts';
import type { Purpose } from './purpose.ts';

/** A model's memory needs, known before it is loaded. */
export interface MemoryNeeds {
  readonly fileBytes: number;
  /** `undefined`: 4, or as many as there is room for. */
  readonly slots: number | undefined;
  /** Memory besides the file: caches and working memory. */
  workBytes(slots: number): number;
  /** For errors: "2 slots of 4096 tokens". */
  placesInWords(slots: number): string;
}

type Header = Pick<GgufHeader, 'fileBytes' | 'cacheBytesPerToken' | 'shape' | 'isCausal' | 'pooling'>;

export interface LoadedFor {
  readonly purpose: Purpose;
  /** Tokens of one slot. */
  readonly contextLength: number;
  readonly slots: number | undefined;
}

export function memoryNeedsOf(header: Header, { purpose, contextLength, slots }: LoadedFor): MemoryNeeds {
  const { fileBytes, cacheBytesPerToken } = header;
  const places = (count: number): string => `${count} ${count === 1 ? 'slot' : 'slots'} of ${contextLength} tokens`;
  if (purpose === 'write')
    return {
      fileBytes,
      slots,
      workBytes: (count) => count * contextLength * cacheBytesPerToken,
      placesInWords: places,
    };
  return {
    fileBytes,
    slots,
    workBytes: (count) =>
      windowsOf(contextLength, count).reduce((sum, window) => sum + taskContextBytes(header, window), 0),
    placesInWords: (count) =>
      count === 1 ? places(1) : `${places(1)} and ${count - 1} of ${windowsOf(contextLength, 2)[1]}`,
  };
}

/** Returns the memory needs that can move to a GPU, with all slots. */
export function layerNeedsOf(
  { shape, vocabularySize }: Pick<GgufHeader, 'shape' | 'vocabularySize'>,
  { fileBytes, slots, workBytes }: MemoryNeeds,
): LayerNeeds {
  const widest = vocabularySize + 4 * shape.width + 2 * shape.innerWidth;
  return {
    layers: shape.layers + 1,
    bytes: fileBytes + workBytes(slots ?? slotsDefault),
    // The logits of a step of 512 tokens and what leads to them, four bytes each; 304 MiB for a vocabulary of 152,064 in llama.cpp's log.
    stepBytes: stepTokens * 4 * widest + driverBytes,
  };
}

const stepTokens = 512;
/** What a device's driver reserves per process: about 100 to 300 MB for CUDA. */
const driverBytes = 200e6;

/** Returns the needs that remain for the computer's own memory. */
export function needsBeside(needs: MemoryNeeds, compute: Compute): MemoryNeeds {
  if (compute.on === 'processor' || compute.isUnified) return needs;
  const share = 1 - compute.layers / compute.layersMax;
  return {
    ...needs,
    fileBytes: Math.ceil(needs.fileBytes * share),
    workBytes: (slots) => Math.ceil(needs.workBytes(slots) * share),
  };
}

/** The number of slots if it is not configured: 4, or fewer if there is no room for them. */
export const slotsDefault = 4;

/**
 * Returns the windows of the contexts in which a model embeds or ranks, one input at a time each. An input is computed whole, so a long
 * window takes much memory: one context has the full window, the others one that fits most inputs.
 */
export const windowsOf = (contextLength: number, count: number): readonly number[] =>
  Array.from({ length: count }, (_, index) =>
    index === 0 ? contextLength : Math.min(contextLength, usualInputTokens),
  );

const usualInputTokens = 512;

/**
 * Returns how many tokens of one input are computed together: all of them, unless later tokens do not change earlier ones and only the last
 * one counts.
 */
export const taskBatchTokens = (
  { isCausal, pooling }: Pick<GgufHeader, 'isCausal' | 'pooling'>,
  window: number,
): number => (isCausal && pooling === 'last' ? Math.min(window, usualInputTokens) : window);

/**
 * Estimates what llama.cpp allocates, measured for BERT and Llama of 256 to 512 dimensions and windows of 512 to 8,192: 22 to 32 bytes per
 * token and dimension where the inner width is twice the dimensions, and two for each pair of a token and one that it sees.
 */
function taskContextBytes(header: Header, window: number): number {
  const { width, innerWidth } = header.shape;
  const batch = taskBatchTokens(header, window);
  const cache = header.isCausal ? window * header.cacheBytesPerToken : 0;
  return cache + batch * 4 * (innerWidth * 2 + width * 4) + batch * window * 2;
}
