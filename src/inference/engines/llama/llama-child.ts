import '../../../platform/stack-traces.ts';

import { ApiError } from '../../../platform/errors.ts';
import { continuesLast } from '../../../generation/request.ts';
import type { CallRules } from '../../output-parsers/calls.ts';
import { AnswerPlanner, type AnswerDemand } from './answer-plan.ts';
import { devicesOf, keepThreads, openEngine } from './addon.ts';
import { openModel } from './bindings.ts';
import type { Grammar, LlamaModel } from './llama-model.ts';
import { ChatTemplate } from './chat-template.ts';
import type { GpuBuild } from './compute.ts';
import { Delivery } from './delivery.ts';
import { devicesMark, keptThreadsMark } from './gpu-search.ts';
import type { Job } from './job.ts';
import { Loop } from './loop.ts';
import { offeredTools, PromptTokenizer, type PromptRequest } from './prompt.ts';
import { refusalOf } from './refusal.ts';
import { openTaskModel } from './task-bindings.ts';
import { TaskEngine } from './task-engine.ts';
import { Rpc } from '../../../platform/rpc/rpc.ts';
import { ProcessTransport, type ProcessChannel } from '../../../platform/rpc/transport.ts';
import type { ChildCalls, Counted, HostCalls, LoadOptions, ModelFacts, Refusal, Work } from './protocol.ts';
import { PromptEcho } from './prompt-echo.ts';
import { samplingSettings, type BannedTokens } from './sampling.ts';
import { callsMaxOf, forcesCalls, toolGrammar } from './tool-grammar.ts';

/**
 * The entry point of an engine child: one model, one context, one loop. It communicates only over the channel of `fork`; its standard
 * output and error are discarded, since libraries print prompts. It keeps nothing that would be lost with it, so it ends by killing itself:
 * `process.exit` would wait for a decode running on the thread pool.
 */
function serve(): void {
  let loaded: Promise<ChildEngine> | undefined;
  let working = () => 0;
  process.on('disconnect', endNow);
  process.on('uncaughtException', endNow);
  process.on('unhandledRejection', endNow);
  // If the model cannot be used, the parent is informed and ends this process.
  const whenLoaded = (act: (engine: ChildEngine) => void): void => void loaded?.then(act, () => {});
  const host: Host = new Rpc<HostCalls, ChildCalls>(new ProcessTransport(process as unknown as ProcessChannel), {
    onBroken: endNow,
    handlers: {
      load: async (options) => {
        loaded = load(options, host);
        const engine = await loaded;
        working = () => engine.working;
        return engine.facts;
      },
      ping: () => ({ rssBytes: process.memoryUsage.rss(), working: working() }),
      count: ({ request, work }) =>
        new Promise((resolve) => whenLoaded((engine) => engine.count(request, work, resolve))),
      generate: ({ request, work }) => whenLoaded((engine) => engine.generate(request, work)),
      taken: ({ request, tokens }) => whenLoaded((engine) => engine.taken(request, tokens)),
      cancel: (request) => whenLoaded((engine) => engine.cancel(request)),
    },
  });
}

type Host = Rpc<HostCalls, ChildCalls>;

/** The work that a child does with its model. */
interface ChildEngine {
  readonly facts: ModelFacts;
  readonly working: number;
  count(request: number, work: Work, counted: (outcome: Counted) => void): void;
  generate(request: number, work: Work): void;
  taken(request: number, tokens: number): void;
  cancel(request: number): void;
}

async function load(options: LoadOptions, host: Host): Promise<ChildEngine> {
  const { purpose, threadsMax } = options;
  if (purpose !== 'write') {
    const model = await openTaskModel({ ...options, purpose });
    return new TaskEngine(model, { host, threadsMax, broken: endNow });
  }
  const model = await openModel({
    modelFile: options.modelFile,
    adapter: options.adapter,
    contextLength: options.contextLength,
    slots: options.slots,
    batchTokens: 512,
    threadsMax: options.threadsMax,
    gpu: options.gpu,
  });
  const { chatTemplate, bosText, eosText } = model.facts;
  const template =
    chatTemplate === undefined
      ? undefined
      : new ChatTemplate(chatTemplate, { bos: bosText, eos: eosText }, options.defaultSystem);
  return new Engine(model, template, options, host);
}

class Engine implements ChildEngine {
  readonly #model: LlamaModel;
  readonly #template: ChatTemplate | undefined;
  readonly #tokenizer: PromptTokenizer;
  readonly #options: LoadOptions;
  readonly #host: Host;
  readonly #planner: AnswerPlanner;
  readonly #anchor: readonly number[];
  readonly #loop: Loop;
  /** Tokens that end a generation. */
  #ends: readonly number[] | undefined;
  readonly #running = new Map<number, { readonly jobs: readonly Job[]; readonly delivery: Delivery }>();

  constructor(model: LlamaModel, template: ChatTemplate | undefined, options: LoadOptions, host: Host) {
    this.#model = model;
    this.#template = template;
    this.#tokenizer = new PromptTokenizer(model, template);
    this.#options = options;
    this.#host = host;
    this.#planner = new AnswerPlanner(model, template);
    this.#anchor = [...model.tokenize('\n', false)];
    this.#loop = new Loop(model, {
      decodeThreads: options.decodeThreads,
      threadsMax: options.threadsMax,
      hiddenTokens: this.#planner.hiddenTokens(model.facts.vocabularySize, (id) => model.isEndOfGeneration(id)),
      broken: endNow,
    });
  }

  get facts(): ModelFacts {
    const { slots, contextLength, vocabularySize } = this.#model.facts;
    return {
      slots,
      contextLength,
      vocabularySize,
      removesDefaultSystem: this.#template?.removesDefaultSystem ?? false,
    };
  }

  get working(): number {
    return this.#loop.working;
  }

  /** Counts tokens. A cancelled count is never answered. */
  count(request: number, work: Work, counted: (outcome: Counted) => void): void {
    this.#loop.backgroundTask(
      request,
      orRefuse(this.#count(work, counted), (refusal) => counted({ refusal })),
    );
  }

  generate(request: number, work: Work): void {
    const refused = (refusal: Refusal): void => this.#host.note('refused', { request, refusal });
    this.#loop.backgroundTask(request, orRefuse(this.#begin(request, work), refused));
  }

  /** Records that the reader has taken tokens. */
  taken(request: number, tokens: number): void {
    this.#running.get(request)?.delivery.taken(tokens);
    this.#loop.wake();
  }

  cancel(request: number): void {
    this.#loop.dropBackgroundTask(request);
    const running = this.#running.get(request);
    this.#running.delete(request);
    running?.delivery.close();
    for (const job of running?.jobs ?? []) this.#loop.cancel(job);
  }

  *#count(work: PromptRequest, counted: (outcome: Counted) => void): Generator<void, void> {
    const prompts = yield* this.#tokenizer.promptsInPieces(work);
    counted({ tokens: prompts.reduce((sum, ids) => sum + ids.length, 0) });
  }

  *#begin(request: number, work: Work): Generator<void, void> {
    const prompts = yield* this.#tokenizer.promptsInPieces(work);
    this.#refuseUnreadable(prompts, work);
    const { vocabularySize } = this.#model.facts;
    refuseUnknownTokens(work.logitBias, vocabularySize);
    refuseUnknownStops(work.tokens, vocabularySize);
    const { demand, grammar } = yield* this.#demandOf(work);
    const plan = this.#planner.plan(work, demand);
    const { prompt, tokens } = work;
    const literals = tokens?.skipsSpecial === false ? this.#planner.specialTexts(vocabularySize) : plan.form.literals;
    const detokenize = (ids: readonly number[]): string => this.#model.detokenize(ids);
    const bytesOf = work.logprobs === undefined ? undefined : (id: number) => this.#model.tokenBytes(id);
    // The first blank belongs to a constrained answer, and to one that continues other words.
    const isContinued =
      prompt.type !== 'messages' || continuesLast(prompt) || (grammar !== undefined && demand.holds === 'text');
    const delivery = new Delivery({
      request,
      promptTokens: prompts.map((ids) => ids.length),
      choices: work.choices,
      form: {
        ...plan.form,
        literals,
        stop: work.stop,
        detokenize,
        context: isContinued ? this.#anchor : [],
        bytesOf,
        tokensMin: tokens?.tokensMin ?? 0,
        includesStop: tokens?.includesStop ?? false,
        returnsIds: tokens?.returnsIds ?? false,
      },
      echo:
        tokens !== undefined && (tokens.echo || tokens.returnsIds)
          ? (index) =>
              new PromptEcho({
                ids: prompts[index] ?? [],
                text: prompt.type === 'texts' ? prompt.prompts[index] : undefined,
                echo: tokens.echo,
                returnsIds: tokens.returnsIds,
                detokenize,
                literals,
                bytesOf,
              })
          : undefined,
      constraintParam: work.constraintParam,
      host: this.#host,
      over: ({ failed }) => (failed ? this.cancel(request) : this.#running.delete(request)),
    });
    const group = {};
    const banned = this.#bannedBy(tokens);
    const jobs = prompts.flatMap((ids, promptIndex) =>
      Array.from({ length: work.choices }, (_, index): Job => ({
        prompt: ids,
        maxTokens: work.maxTokens,
        sampling: samplingSettings(work.sampling, work.logitBias, index, randomSeed),
        opening: plan.opening,
        constraint: grammar && { grammar, from: plan.constraintFrom },
        topLogprobs: work.logprobs,
        scoresPrompt: tokens?.echo === true && work.logprobs !== undefined,
        ...(banned === undefined ? {} : { banned }),
        ...(tokens === undefined ? {} : { stopTokens: { ids: tokens.stopIds, included: tokens.includesStop } }),
        group,
        cacheScope: work.cacheScope,
        retain: work.retain,
        reader: delivery.reader(promptIndex * work.choices + index),
      })),
    );
    this.#running.set(request, { jobs, delivery });
    for (const job of jobs) this.#loop.submit(job);
  }

  /** Refuses prompts that this computer cannot read in the time they have. */
  #refuseUnreadable(prompts: readonly (readonly number[])[], { cacheScope, retain, tokens, logprobs }: Work): void {
    const scoresPrompt = tokens?.echo === true && logprobs !== undefined;
    const { readingMsMax } = this.#options;
    const readable = this.#loop.readableTokens(
      prompts.map((prompt) => ({ prompt, cacheScope, retain, scoresPrompt })),
      readingMsMax,
    );
    if (readable === undefined) return;
    throw unreadable(Math.max(...prompts.map(({ length }) => length)), readable, readingMsMax);
  }

  /** Returns the tokens that would end the answer while it may not end. */
  #bannedBy(tokens: Work['tokens']): BannedTokens | undefined {
    if (tokens === undefined || (!tokens.ignoresEnd && tokens.tokensMin === 0)) return undefined;
    const { stopIds, ignoresEnd, tokensMin } = tokens;
    const { vocabularySize } = this.#model.facts;
    this.#ends ??= Array.from({ length: vocabularySize }, (_, id) => id).filter((id) =>
      this.#model.isEndOfGeneration(id),
    );
    const ends = this.#ends;
    return ignoresEnd
      ? { always: ends.filter((id) => !stopIds.includes(id)), first: stopIds, tokensMin }
      : { always: [], first: [...ends, ...stopIds], tokensMin };
  }

  /**
   * Determines what constrains the answer. Forced calls take precedence over the client's own constraint, which takes precedence over calls
   * that the model might begin: with it the model answers instead of calling (§4.2.3(4)).
   */
  *#demandOf(work: Work): Generator<void, { readonly demand: AnswerDemand; readonly grammar: Grammar | undefined }> {
    const calls = callsOf(work);
    const isForced = calls !== undefined && forcesCalls(work);
    if (this.#template === undefined || calls === undefined || (work.gbnf !== undefined && !isForced)) {
      const grammar = work.gbnf === undefined ? undefined : this.#compiled(work.gbnf, work.constraintParam);
      return { demand: { calls: undefined, gbnf: work.gbnf, holds: 'text' }, grammar };
    }
    const gbnf = yield* toolGrammar(work, this.#template.shape.calls);
    try {
      const grammar = gbnf === undefined ? undefined : this.#compiled(gbnf, 'tools');
      const bound = isForced ? 'answer' : grammar === undefined ? 'nothing' : 'marked';
      return { demand: { calls: { ...calls, bound }, gbnf, holds: isForced ? 'calls' : 'begun-calls' }, grammar };
    } catch (error) {
      if (isForced) throw error;
      return {
        demand: { calls: { ...calls, bound: 'nothing' }, gbnf: undefined, holds: 'begun-calls' },
        grammar: undefined,
      };
    }
  }

  /** Compiles a grammar. The pipeline has already parsed it; one that llama.cpp still cannot read is refused, never dropped. */
  #compiled(gbnf: string, param: string | undefined): Grammar {
    refuseDeepGrammar(gbnf, param);
    try {
      return this.#model.createGrammar(gbnf);
    } catch {
      throw new ApiError('unsupported_value', 'The engine of this model cannot read the grammar.', { param });
    }
  }
}

function* orRefuse(work: Generator<void, void>, refused: (refusal: Refusal) => void): Generator<void, void> {
  try {
    yield* work;
  } catch (error) {
    refused(refusalOf(error));
  }
}

function callsOf(work: Work): Omit<CallRules, 'bound'> | undefined {
  const tools = work.prompt.type === 'messages' ? offeredTools(work) : [];
  if (tools.length === 0) return undefined;
  return {
    tools: new Map(tools.map((tool) => [tool.name, tool])),
    callsMax: callsMaxOf(work),
  };
}

/** Refuses deeply nested grammars: llama.cpp parses groups recursively, and 30,000 nested ones overflow its stack. */
function refuseDeepGrammar(gbnf: string, param: string | undefined): void {
  const refuse = (what: string) => new ApiError('unsupported_value', `The grammar ${what}.`, { param });
  if (gbnf.length > gbnfLengthMax) throw refuse(`has more than ${gbnfLengthMax} characters`);
  let depth = 0;
  for (const character of gbnf) {
    if (character === '(') depth++;
    if (character === ')') depth--;
    // Brackets inside literals count too: there are too few of them to matter.
    if (depth > gbnfDepthMax) throw refuse(`has more than ${gbnfDepthMax} groups inside each other`);
  }
}

const gbnfLengthMax = 512 * 1024;
const gbnfDepthMax = 2000;

const unreadable = (promptTokens: number, readable: number, ms: number): ApiError =>
  new ApiError('context_length_exceeded', 'The prompt cannot be read in time.', {
    extra: { prompt_tokens: promptTokens, context_length_limit: readable, reading_seconds: Math.round(ms / 1000) },
  });

function refuseUnknownTokens(logitBias: Work['logitBias'], vocabularySize: number): void {
  for (const [key, bias] of Object.entries(logitBias ?? {})) {
    const id = Number(key);
    if (Number.isInteger(id) && id >= 0 && id < vocabularySize && Number.isFinite(bias)) continue;
    throw new ApiError(
      'unsupported_value',
      `A bias needs a number and a token id between 0 and ${vocabularySize - 1}.`,
      { param: 'logit_bias' },
    );
  }
}

function refuseUnknownStops(tokens: Work['tokens'], vocabularySize: number): void {
  if (tokens?.stopIds.every((id) => id < vocabularySize) !== false) return;
  throw new ApiError('unsupported_value', `A token id is not between 0 and ${vocabularySize - 1}.`, {
    param: 'stop_token_ids',
  });
}

function randomSeed(): number {
  return Math.floor(Math.random() * 2 ** 32);
}

function endNow(): void {
  process.kill(process.pid, 'SIGKILL');
}

/**
 * Prints an answer for the service, which reads this output: `llama-child probe` checks whether the native library loads, `llama-child
 * devices BUILD` lists the devices that a GPU build finds. The output of a child serving a model is never read.
 */
async function answerAndExit(act: () => Promise<string>): Promise<never> {
  try {
    process.stdout.write(`${await act()}\n`);
    process.exit(0);
  } catch (error) {
    process.stderr.write(`\nreason: ${error instanceof Error ? error.message : String(error)}`);
    process.exit(1);
  }
}

async function probe(): Promise<string> {
  await openEngine({ gpu: false, threadsMax: 1 });
  return keepThreads() ? keptThreadsMark : '';
}

const devices = async (build: string): Promise<string> =>
  `${devicesMark}${JSON.stringify(await devicesOf(JSON.parse(build) as GpuBuild))}`;

const [task, build] = process.argv.slice(2);
if (task === 'probe') await answerAndExit(probe);
else if (task === 'devices' && build !== undefined) await answerAndExit(() => devices(build));
else serve();
