import { ApiError } from '../../errors.ts';
import { openModel, type LlamaModel } from './bindings.ts';
import { ChatTemplate } from './chat-template.ts';
import { Delivery } from './delivery.ts';
import { Loop, type Job } from './loop.ts';
import { PromptTokenizer } from './prompt.ts';
import type { ChildMessage, HostMessage, LoadOptions, Refusal, Work } from './protocol.ts';
import { samplingSettings } from './sampling.ts';

/**
 * The entry of an engine child: one model, one context, one loop. It speaks only over the channel of `fork`; its standard
 * output and error lead nowhere, since libraries print prompts. It keeps nothing that would be lost with it, so it ends by
 * killing itself: `process.exit` would wait for a decode that runs on the thread pool.
 */
function serve(): void {
  let loaded: Promise<Engine> | undefined;
  process.on('disconnect', endNow);
  process.on('uncaughtException', endNow);
  process.on('unhandledRejection', endNow);
  process.on('message', (message: HostMessage) => {
    switch (message.type) {
      case 'load':
        loaded = load(message.options);
        loaded.then(
          (engine) => send({ type: 'ready', ...engine.facts }),
          (error: unknown) =>
            send({ type: 'unusable', detail: error instanceof Error ? error.message : 'the model cannot be loaded' }),
        );
        return;
      case 'ping':
        send({ type: 'pong', rssBytes: process.memoryUsage.rss() });
        return;
      case 'generate':
      case 'count':
      case 'taken':
      case 'cancel':
        loaded?.then((engine) => engine.handle(message), endNow);
    }
  });
}

async function load(options: LoadOptions): Promise<Engine> {
  const model = await openModel({
    modelFile: options.modelFile,
    contextLength: options.contextLength,
    slots: options.slots,
    batchTokens: 512,
    prefillThreads: options.prefillThreads,
    gpu: options.gpu,
    ...(options.cacheBytesMax === undefined ? {} : { cacheBytesMax: options.cacheBytesMax }),
  });
  const { chatTemplate, bosText, eosText } = model.facts;
  const template =
    chatTemplate === undefined
      ? undefined
      : new ChatTemplate(chatTemplate, { bos: bosText, eos: eosText }, options.defaultSystem);
  return new Engine(model, template, options);
}

type RequestMessage = Extract<HostMessage, { readonly request: number }>;

class Engine {
  readonly #model: LlamaModel;
  readonly #template: ChatTemplate | undefined;
  readonly #tokenizer: PromptTokenizer;
  readonly #options: LoadOptions;
  readonly #loop: Loop;
  readonly #running = new Map<number, { readonly jobs: readonly Job[]; readonly delivery: Delivery }>();

  constructor(model: LlamaModel, template: ChatTemplate | undefined, options: LoadOptions) {
    this.#model = model;
    this.#template = template;
    this.#tokenizer = new PromptTokenizer(model, template);
    this.#options = options;
    this.#loop = new Loop(model, {
      decodeThreads: options.decodeThreads,
      prefillThreads: options.prefillThreads,
      broken: endNow,
    });
  }

  get facts() {
    const { slots, contextLength } = this.#model.facts;
    return { slots, contextLength, removesDefaultSystem: this.#template?.removesDefaultSystem ?? false };
  }

  handle(message: RequestMessage): void {
    const { request } = message;
    switch (message.type) {
      case 'count':
        this.#loop.chore(request, () => {
          this.#orRefuse(request, () => {
            const tokens = this.#tokenizer.prompts(message.work).reduce((sum, ids) => sum + ids.length, 0);
            send({ type: 'counted', request, tokens });
          });
        });
        return;
      case 'generate':
        this.#loop.chore(request, () => {
          this.#orRefuse(request, () => this.#begin(request, message.work));
        });
        return;
      case 'taken':
        this.#running.get(request)?.delivery.taken(message.tokens);
        this.#loop.wake();
        return;
      case 'cancel':
        this.#giveUp(request);
    }
  }

  #orRefuse(request: number, work: () => void): void {
    try {
      work();
    } catch (error) {
      send({ type: 'refused', request, refusal: refusalOf(error) });
    }
  }

  #begin(request: number, work: Work): void {
    const prompts = this.#tokenizer.prompts(work);
    refuseUnknownTokens(work.logitBias, this.#model.facts.vocabularySize);
    const delivery = new Delivery({
      request,
      promptTokens: prompts.map((ids) => ids.length),
      choices: work.choices,
      stop: work.stop,
      detokenize: (ids) => this.#model.detokenize(ids),
      send,
      over: ({ failed }) => (failed ? this.#giveUp(request) : this.#running.delete(request)),
    });
    const jobs = prompts.flatMap((prompt, promptIndex) =>
      Array.from({ length: work.choices }, (_, index): Job => ({
        prompt,
        maxTokens: work.maxTokens,
        sampling: samplingSettings(work.sampling, this.#options.samplingDefaults, work.logitBias, index, randomSeed),
        cacheScope: work.cacheScope,
        retain: work.retain,
        reader: delivery.reader(promptIndex * work.choices + index),
      })),
    );
    this.#running.set(request, { jobs, delivery });
    for (const job of jobs) this.#loop.submit(job);
  }

  #giveUp(request: number): void {
    this.#loop.dropChore(request);
    const running = this.#running.get(request);
    this.#running.delete(request);
    running?.delivery.close();
    for (const job of running?.jobs ?? []) this.#loop.cancel(job);
  }
}

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

function refusalOf(error: unknown): Refusal {
  if (error instanceof ApiError) {
    return { code: error.code, message: error.message, param: error.param, extra: error.extra, detail: undefined };
  }
  // No more than its name: messages of unexpected errors may quote what they failed on.
  const detail = error instanceof Error ? error.name : undefined;
  return {
    code: 'internal_error',
    message: 'The service failed while it read the prompt.',
    param: undefined,
    extra: {},
    detail,
  };
}

function randomSeed(): number {
  return Math.floor(Math.random() * 2 ** 32);
}

function send(message: ChildMessage): void {
  if (process.connected) process.send?.(message);
}

function endNow(): void {
  process.kill(process.pid, 'SIGKILL');
}

serve();
