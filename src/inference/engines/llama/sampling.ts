import type { Sampling } from '../../../generation/request.ts';
import type { GrammarState, Sampler, SamplerConfig } from './llama-model.ts';

/** The sampling settings of one choice: every number present, finite and in range. */
export interface SamplingSettings {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly seed: number;
  readonly repetitionPenalty: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  readonly logitBias: ReadonlyMap<number, number>;
}

/**
 * Returns the settings of choice `index` of a prompt. Fields left open are neutral: temperature 1, nothing cut off, no penalties. A fixed
 * seed makes each choice repeatable individually (seed + index); llama.cpp does not promise the same numbers for different batches, so that
 * is best effort.
 */
export function samplingSettings(
  sampling: Sampling,
  logitBias: Readonly<Record<string, number>> | undefined,
  index: number,
  randomSeed: () => number,
): SamplingSettings {
  const value = (name: Exclude<keyof Sampling, 'seed'>, neutral: number, least: number, most: number): number => {
    const given = sampling[name];
    // The addon accepts NaN as a temperature, so only numbers may be passed on.
    return given === undefined || !Number.isFinite(given) ? neutral : Math.min(most, Math.max(least, given));
  };
  const topK = Math.floor(value('topK', 0, 0, topKMax));
  const { seed } = sampling;
  return {
    temperature: value('temperature', 1, 0, 100),
    topK: topK === 0 ? topKMax : topK,
    topP: value('topP', 1, 0, 1),
    minP: value('minP', 0, 0, 1),
    seed: seedOf(seed === undefined || !Number.isFinite(seed) ? randomSeed() : Math.floor(seed) + index),
    repetitionPenalty: value('repetitionPenalty', 1, 0.01, 100),
    presencePenalty: value('presencePenalty', 0, -100, 100),
    frequencyPenalty: value('frequencyPenalty', 0, -100, 100),
    logitBias: biasesOf(logitBias),
  };
}

/** Banned tokens: always, or before this many tokens of the answer. */
export interface BannedTokens {
  readonly always: readonly number[];
  readonly first: readonly number[];
  readonly tokensMin: number;
}

const nothingBanned: BannedTokens = { always: [], first: [], tokensMin: 0 };

/**
 * A sampler that applies the settings through one answer. The repetition penalty considers the prompt and the answer, presence and
 * frequency only the answer (like vLLM); llama.cpp has one window for all three, so presence and frequency are expressed as biases, which
 * are applied before the repetition penalty.
 */
export class ChoiceSampler {
  readonly sampler: Sampler;
  readonly #settings: SamplingSettings;
  readonly #tokens: number[];
  readonly #counts = new Map<number, number>();
  readonly #contextLength: number;
  readonly #bannedInGrammars: readonly number[];
  readonly #banned: BannedTokens;
  readonly #isEnd: (id: number) => boolean;
  /** Number of answer tokens so far. */
  #accepted = 0;
  #grammar: GrammarState | undefined;

  /** `bannedInGrammars`: tokens whose text llama.cpp's grammars know and readers do not see. */
  constructor(
    sampler: Sampler,
    settings: SamplingSettings,
    prompt: readonly number[],
    contextLength: number,
    bannedInGrammars: readonly number[] = [],
    banned: BannedTokens = nothingBanned,
    isEnd: (id: number) => boolean = () => false,
  ) {
    this.sampler = sampler;
    this.#settings = settings;
    this.#bannedInGrammars = bannedInGrammars;
    this.#banned = banned;
    this.#isEnd = isEnd;
    this.#tokens = settings.repetitionPenalty === 1 ? [] : [...prompt];
    this.#contextLength = contextLength;
    sampler.configure(this.#config());
  }

  get isConstrained(): boolean {
    return this.#grammar !== undefined;
  }

  /** Whether any tokens are banned. */
  get isLimited(): boolean {
    return this.#grammar !== undefined || this.#settings.logitBias.size > 0 || this.#bans.length > 0;
  }

  /** Makes the grammar hold from the next token on. */
  constrain(grammar: GrammarState): void {
    this.#grammar = grammar;
    this.sampler.configure(this.#config());
  }

  /**
   * Checks llama.cpp's choice again: where everything is forbidden it picks a forbidden token, and a grammar notices all of those except
   * the end of a generation.
   */
  judge(id: number, isEnd: boolean): 'fits' | 'forbidden' {
    if (id < 0) return 'forbidden';
    const isBanned = this.#settings.logitBias.get(id) === -Infinity || this.#bans.includes(id);
    // A text that satisfies its grammar ends, whatever is banned.
    if (isBanned && !(isEnd && this.#grammar !== undefined)) return 'forbidden';
    return this.#grammar === undefined || !isEnd || this.#grammar.allows(id) ? 'fits' : 'forbidden';
  }

  /** Advances the grammar by a token that was not sampled. */
  follow(id: number): boolean {
    return this.#grammar?.take(id) ?? true;
  }

  /** Returns whether the text is complete, with nothing left for the grammar to require. */
  isComplete(eos: number | undefined): boolean {
    return eos !== undefined && this.#grammar?.allows(eos) === true;
  }

  /** Must be called with each sampled token. */
  accept(id: number): void {
    const { presencePenalty, frequencyPenalty, repetitionPenalty } = this.#settings;
    this.#accepted++;
    if (repetitionPenalty !== 1) this.#tokens.push(id);
    const isPenalised = presencePenalty !== 0 || frequencyPenalty !== 0;
    // Under a grammar the sampler has also seen tokens that it drew and discarded.
    if (!isPenalised && (repetitionPenalty === 1 || this.#grammar === undefined)) {
      if (this.#accepted === this.#banned.tokensMin) this.sampler.configure(this.#config());
      return;
    }
    if (isPenalised) this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
    this.sampler.configure(this.#config());
  }

  dispose(): void {
    this.sampler.dispose();
  }

  #config(): SamplerConfig {
    const { temperature, topK, topP, minP, seed, repetitionPenalty } = this.#settings;
    const repetition =
      repetitionPenalty === 1
        ? {}
        : {
            repeatPenalty: repetitionPenalty,
            repeatPenaltyTokens: Uint32Array.from(this.#tokens),
            repeatPenaltyMaxTokens: this.#contextLength,
          };
    const biases = this.#biases();
    const bias =
      biases.size === 0
        ? {}
        : { tokenBiasKeys: Uint32Array.from(biases.keys()), tokenBiasValues: Float32Array.from(biases.values()) };
    const grammar = this.#grammar === undefined ? {} : { grammar: this.#grammar };
    return { temperature, topK, topP, minP, seed, ...repetition, ...bias, ...grammar };
  }

  get #bans(): readonly number[] {
    const { always, first, tokensMin } = this.#banned;
    return this.#accepted < tokensMin ? [...always, ...first] : always;
  }

  #biases(): ReadonlyMap<number, number> {
    const { logitBias, presencePenalty, frequencyPenalty } = this.#settings;
    const bans = this.#bans;
    if (this.#counts.size === 0 && this.#grammar === undefined && bans.length === 0) return logitBias;
    const biases = new Map(logitBias);
    if (this.#grammar !== undefined) for (const id of this.#bannedInGrammars) biases.set(id, -Infinity);
    for (const [id, count] of this.#counts) {
      biases.set(id, (biases.get(id) ?? 0) - presencePenalty - frequencyPenalty * count);
    }
    for (const id of bans) biases.set(id, -Infinity);
    // llama.cpp ends the process when a grammar allows only an end and that is impossible: so an end remains as the last resort.
    if (this.#grammar !== undefined)
      for (const [id, bias] of biases) if (bias === -Infinity && this.#isEnd(id)) biases.set(id, lastResort);
    return biases;
  }
}

/** A full sort of the vocabulary costs 2.3 ms a token at 49,000 tokens and 10 ms at 150,000; the top 1,000 cost 0.1 and 0.3. */
const topKMax = 1000;

/** llama.cpp seeds are 32 bits, and the highest one means "any". */
function seedOf(seed: number): number {
  const size = 2 ** 32;
  const wrapped = ((seed % size) + size) % size;
  return wrapped === size - 1 ? size - 2 : wrapped;
}

/** Converts biases: -100 bans a token and 100 makes it certain, as in the OpenAI API; several certain ones keep their order. */
function biasesOf(logitBias: Readonly<Record<string, number>> | undefined): ReadonlyMap<number, number> {
  const biases = new Map<number, number>();
  for (const [id, bias] of Object.entries(logitBias ?? {}))
    biases.set(Number(id), bias <= -100 ? -Infinity : bias >= 100 ? certain : bias);
  return biases;
}

/** Far below the logits of models: chosen only when nothing else is possible. */
const lastResort = -1_000_000;

/** Far above the logits of models (some tens) and small enough that differences survive in 32 bits. */
const certain = 1000;
