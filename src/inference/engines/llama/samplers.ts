import {
  ownLibrary,
  threadsAtFirst,
  type AddonContext,
  type AddonGrammarState,
  type AddonSampler,
  type AddonSamplerClass,
  type Library,
} from './addon.ts';
import type { GrammarState, Sampler, SamplerConfig } from './llama-model.ts';
import type { TokenOrder } from './token-order.ts';

/** The service's native library, and its handle of the context. */
export interface Chooser {
  readonly library: Library;
  readonly context: object;
}

export function chooserOf(context: AddonContext): Chooser | undefined {
  const library = ownLibrary();
  if (library === undefined) return undefined;
  context.setThreads(threadsAtFirst);
  return { library, context: library.context() };
}

const noTokens = new Uint32Array(0);

/** A sampler that only works with these bindings, since it needs the addon's context. */
export interface SamplerHandle extends Sampler {
  /** Rejects if no token fits. */
  sample(context: AddonContext, logits: number): Promise<number>;
}

/**
 * Chooses on this thread, with the service's native library. Under a grammar it makes up to four attempts, because holding a vocabulary of
 * 49,000 tokens to it takes 6 ms: the free choice, if the grammar allows it; else a choice among all allowed tokens, if there are few; else
 * among the likeliest thousand, in the middle of texts where nearly everything is allowed; else among the whole vocabulary. Each token is
 * as likely as if the forbidden ones had been removed first.
 */
export class QuickSampler implements SamplerHandle {
  readonly #chooser: Chooser;
  readonly #sampler: object;
  readonly #onThreads: () => ThreadSampler;
  readonly #order: () => TokenOrder;
  #config: SamplerConfig | undefined;
  /** For cases that this one does not handle: penalties, and slow grammars. */
  #other: ThreadSampler | undefined;
  #otherConfig: SamplerConfig | undefined;

  constructor(chooser: Chooser, onThreads: () => ThreadSampler, order: () => TokenOrder) {
    this.#chooser = chooser;
    this.#sampler = chooser.library.sampler();
    this.#onThreads = onThreads;
    this.#order = order;
  }

  configure(config: SamplerConfig): void {
    this.#config = config;
    if (config.repeatPenaltyTokens !== undefined) return void this.#configuredOther(config);
    const { temperature, topK, topP, minP, seed, tokenBiasKeys = noTokens, tokenBiasValues = noBiases } = config;
    const numbers = Float64Array.of(temperature, topK, topP, minP, seed);
    this.#chooser.library.configure(this.#sampler, numbers, tokenBiasKeys, tokenBiasValues);
  }

  async sample(addon: AddonContext, logits: number): Promise<number> {
    if (this.#config === undefined) throw new Error('the sampler has no settings');
    const { grammar, repeatPenaltyTokens } = this.#config;
    if (repeatPenaltyTokens !== undefined) return await this.#configuredOther(this.#config).sample(addon, logits);
    const { library, context } = this.#chooser;
    if (grammar === undefined) return library.sample(context, logits, this.#sampler);
    const state = grammarHandleOf(grammar);
    if (!state.isHeavy && state.address !== undefined) {
      const id = library.sample(context, logits, this.#sampler);
      if (id >= 0 && state.take(id)) return id;
      const allowed = this.#order().allowed((ids) => state.allowsEach(ids));
      const other =
        allowed !== undefined && allowed.length <= fewMax
          ? library.sampleAmong(context, logits, this.#sampler, Uint32Array.from(allowed))
          : state.isHeavy
            ? -1
            : library.sampleAllowed(context, logits, this.#sampler, state.address);
      if (other >= 0 && state.take(other)) return other;
    }
    return await this.#configuredOther(this.#config).sampleStrictly(addon, logits);
  }

  #configuredOther(config: SamplerConfig): ThreadSampler {
    this.#other ??= this.#onThreads();
    if (this.#otherConfig !== config) this.#other.configure(config);
    this.#otherConfig = config;
    return this.#other;
  }

  dispose(): void {
    this.#other?.dispose();
  }
}

/**
 * Chooses on the addon's threads. Without a grammar, it uses one of the addon's samplers. With one, up to three: the free choice, if the
 * grammar allows it; else a choice among the allowed tokens, if there are few; else the addon's own choice.
 */
export class ThreadSampler implements SamplerHandle {
  readonly #create: () => AddonSampler;
  readonly #order: () => TokenOrder;
  readonly #free: AddonSampler;
  #few: AddonSampler | undefined;
  #strict: AddonSampler | undefined;
  #config: SamplerConfig | undefined;
  /** The strict sampler's current configuration. */
  #strictConfig: SamplerConfig | undefined;

  constructor(create: () => AddonSampler, order: () => TokenOrder) {
    this.#create = create;
    this.#order = order;
    this.#free = create();
  }

  configure(config: SamplerConfig): void {
    this.#config = config;
    const { grammar: _, ...free } = config;
    this.#free.applyConfig(free);
  }

  async sample(context: AddonContext, logits: number): Promise<number> {
    if (this.#config === undefined) throw new Error('the sampler has no settings');
    const { grammar, ...config } = this.#config;
    if (grammar === undefined) return await context.sampleToken(logits, this.#free);
    const state = grammarHandleOf(grammar);
    if (!state.isHeavy) {
      const id = await context.sampleToken(logits, this.#free).catch(() => undefined);
      if (id !== undefined && state.take(id)) return id;
      const other = await this.#oneOfFew(context, logits, config, state);
      if (other !== undefined && state.take(other)) return other;
    }
    return await this.sampleStrictly(context, logits);
  }

  /** Chooses with the whole vocabulary held to the grammar. */
  async sampleStrictly(context: AddonContext, logits: number): Promise<number> {
    if (this.#config?.grammar === undefined) throw new Error('the sampler has no grammar');
    const { grammar, ...config } = this.#config;
    const state = grammarHandleOf(grammar);
    this.#strict ??= this.#create();
    if (this.#strictConfig !== this.#config)
      this.#strict.applyConfig({ ...config, grammarEvaluationState: state.addon });
    this.#strictConfig = this.#config;
    return await context.sampleToken(logits, this.#strict);
  }

  /** Chooses among the allowed tokens; `undefined`: there are many, or llama.cpp is slow at this grammar. */
  async #oneOfFew(
    context: AddonContext,
    logits: number,
    config: Omit<SamplerConfig, 'grammar'>,
    state: GrammarStateHandle,
  ): Promise<number | undefined> {
    const allowed = this.#order().allowed((ids) => state.allowsEach(ids));
    if (allowed === undefined || state.isHeavy || allowed.length > fewMax) return undefined;
    if (allowed.length <= 1) return allowed[0];
    // A bias that lifts them above all others preserves the differences among them. Banned tokens stay banned.
    const { tokenBiasKeys = noTokens, tokenBiasValues = noBiases } = config;
    const biases = new Map([...tokenBiasKeys].map((id, index) => [id, tokenBiasValues[index]!]));
    for (const id of allowed) biases.set(id, (biases.get(id) ?? 0) + aboveAll);
    this.#few ??= this.#create();
    this.#few.applyConfig({
      ...config,
      topK: Math.min(config.topK, allowed.length),
      tokenBiasKeys: Uint32Array.from(biases.keys()),
      tokenBiasValues: Float32Array.from(biases.values()),
    });
    return await context.sampleToken(logits, this.#few).catch(() => undefined);
  }

  dispose(): void {
    for (const each of [this.#free, this.#few, this.#strict]) each?.dispose();
  }
}

/** With more allowed tokens, nearly everything is allowed in the text. */
const fewMax = 512;
/** Far above the logits of models and certain biases (`sampling.ts`), and small enough that differences survive in 32 bits. */
const aboveAll = 4000;
const noBiases = new Float32Array(0);

export class GrammarStateHandle implements GrammarState {
  readonly addon: AddonGrammarState;
  /** The native library's handle; it ends with the addon's object. */
  readonly address: object | undefined;
  readonly #sampler: AddonSamplerClass;
  readonly #library: Library | undefined;
  /** Consecutive slow queries so far: a single one may only have waited for a processor. */
  #slow = 0;
  /** `addon`: the most recently made state. */
  constructor(addon: AddonGrammarState, sampler: AddonSamplerClass, library: Library | undefined) {
    this.addon = addon;
    this.#sampler = sampler;
    this.#library = library;
    this.address = library?.grammar();
  }
  /**
   * Whether the grammar is slow. When a grammar branches without end, its state doubles with every character, and nothing can interrupt
   * llama.cpp: then it is left to the addon's threads, and this one stays free to notice.
   */
  get isHeavy(): boolean {
    return this.#slow >= heavyTimes;
  }
  allows(id: number): boolean {
    return this.#watched(() => this.#sampler.canBeNextTokenForGrammarEvaluationState(this.addon, id));
  }
  allowsEach(ids: Uint32Array): ArrayLike<number> | undefined {
    const answers = new Uint8Array(ids.length);
    if (this.#library !== undefined && this.address !== undefined) {
      if (this.#library.allowed(this.address, ids, answers)) return answers;
      this.#slow++;
      return undefined;
    }
    for (const [index, id] of ids.entries()) {
      answers[index] = this.allows(id) ? 1 : 0;
      if (this.isHeavy) return undefined;
    }
    return answers;
  }
  take(id: number): boolean {
    // llama.cpp ends the process on an end of generation that does not fit.
    if (!this.allows(id)) return false;
    try {
      this.#watched(() => this.#sampler.acceptGrammarEvaluationStateToken(this.addon, id));
      return true;
    } catch {
      return false;
    }
  }
  #watched<Result>(act: () => Result): Result {
    const startedMs = performance.now();
    const result = act();
    this.#slow = performance.now() - startedMs > heavyMs ? this.#slow + 1 : 0;
    return result;
  }
}

/** Per token; some microseconds are usual. */
const heavyMs = 1;
const heavyTimes = 3;

function grammarHandleOf(state: GrammarState): GrammarStateHandle {
  if (!(state instanceof GrammarStateHandle)) throw new Error('the grammar belongs to another model');
  return state;
}

export function samplerOf(sampler: Sampler): SamplerHandle {
  if (!(sampler instanceof QuickSampler) && !(sampler instanceof ThreadSampler))
    throw new Error('the sampler belongs to another model');
  return sampler;
}
