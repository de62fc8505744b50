import type { GgufHeader } from './gguf-header.ts';
import type { Purpose } from './purpose.ts';

/** What a model takes of the memory, before it is loaded. */
export interface MemoryNeeds {
  readonly fileBytes: number;
  /** `undefined`: 4, or as many as there is room for. */
  readonly slots: number | undefined;
  /** Beside the file: caches, and what is computed in. */
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

/**
 * The contexts in which a model embeds or ranks, one input at a time each. An input is computed whole, so a long window takes much
 * memory: one context has it, the others take what most inputs are.
 */
export const windowsOf = (contextLength: number, count: number): readonly number[] =>
  Array.from({ length: count }, (_, index) =>
    index === 0 ? contextLength : Math.min(contextLength, usualInputTokens),
  );

const usualInputTokens = 512;

/**
 * Tokens of one input that are computed together: all of them, unless later ones do not change what earlier ones were and only the
 * last one counts.
 */
export const taskBatchTokens = (
  { isCausal, pooling }: Pick<GgufHeader, 'isCausal' | 'pooling'>,
  window: number,
): number => (isCausal && pooling === 'last' ? Math.min(window, usualInputTokens) : window);

/**
 * As llama.cpp allocates it, measured for BERT and Llama of 256 to 512 dimensions and windows of 512 to 8,192: 22 to 32 bytes a token
 * and dimension where the inner width is twice the dimensions, and two for each pair of a token and one that it sees.
 */
function taskContextBytes(header: Header, window: number): number {
  const { width, innerWidth } = header.shape;
  const batch = taskBatchTokens(header, window);
  const cache = header.isCausal ? window * header.cacheBytesPerToken : 0;
  return cache + batch * 4 * (innerWidth * 2 + width * 4) + batch * window * 2;
}
