/** Requests from their orders to their ends, in this process, over a real ledger. */
import { Catalog } from '../../../src/catalog/catalog.ts';
import type { Receipt } from '../../../src/billing/hold.ts';
import { scriptRule } from '../../../src/inference/engines/scripted/script-schema.ts';
import type { ScriptSettings } from '../../../src/inference/engines/scripted/script-schema.ts';
import type { Engine } from '../../../src/inference/engines/engine.ts';
import { createScriptedEngine } from '../../../src/inference/engines/scripted/scripted-engine.ts';
import { ImageFetcher } from '../../../src/inference/images/fetcher.ts';
import { WholeLimits } from '../../../src/billing/rate-limits/whole-limits.ts';
import { Limits, type Plan } from '../../../src/billing/rate-limits/rate-limits.ts';
import { Windows } from '../../../src/billing/rate-limits/windows.ts';
import { openBackendPool } from '../../../src/inference/pipeline/backend-pool.ts';
import type { Backend } from '../../../src/inference/pipeline/backend-pool.ts';
import { idleLoad } from '../../../src/inference/routing/backend-load.ts';
import type { TakeBatch } from '../../../src/generation/event.ts';
import { run } from '../../../src/inference/pipeline/run.ts';
import type { RunningCall } from '../../../src/inference/pipeline/run.ts';
import { PromptCounts } from '../../../src/inference/pipeline/count.ts';
import { allow } from '../../../src/inference/pipeline/allow.ts';
import type { ServeServices } from '../../../src/inference/pipeline/call.ts';
import { placeOrder } from '../../../src/inference/pipeline/place-order.ts';
import type { Model } from '../../../src/catalog/model.ts';
import type { Prices } from '../../../src/catalog/pricing.ts';
import type { Order } from '../../../src/inference/pipeline/order.ts';
import { prices } from '../../billing/bills.ts';
import type { Counter } from '../../billing/bills.ts';
import { uuid } from '../../store/fixture.ts';
import { defaultFetchSettings } from '../../support/image-settings.ts';
import { chatRoute, textCapabilities } from './models.ts';

/** Nothing is limited by windows here. */
const unused = () =>
  new Windows({ store: { load: () => Promise.resolve([]), add: () => Promise.resolve([]) }, now: Date.now });

/** A backend of a test: what it plays, and what its engine does otherwise. */
export interface PlayedBackend {
  readonly label: string;
  readonly script: ScriptSettings;
  readonly engine?: Partial<Engine>;
}

/** Those of a model; the first that is free and has not failed the request gets it. */
const backendsFor = (
  model: string,
  played: readonly PlayedBackend[],
  asked: (script: ScriptSettings) => void,
): readonly Backend[] =>
  played.map(({ label, script, engine = {} }, index) => {
    const own = createScriptedEngine({ name: model, contextLength, scripts: [scriptRule(script)] });
    const generate = own.generate.bind(own);
    return {
      label,
      kind: 'scripted',
      provider: 'scripted',
      rankWritten: index + 1,
      engine: Object.assign(own, {
        generate: ((...args) => {
          asked(script);
          return generate(...args);
        }) satisfies Engine['generate'],
        ...engine,
      }),
      queueMax: 0,
      zdr: true,
      enforces: [],
      lacks: [],
      ...idleLoad(),
    };
  });

const contextLength = 4_096;

const demo: Model = {
  id: 'demo',
  displayName: 'Demo',
  description: undefined,
  ownedBy: 'test',
  contextLength,
  maxOutputTokens: null,
  prices,
  sampling: 'honor',
  defaults: { system: undefined, sampling: {} },
  capabilities: textCapabilities,
  zdrCapabilities: textCapabilities,
  tier: undefined,
  deprecationDate: undefined,
};

export interface ServicesOptions {
  readonly plans?: readonly Plan[];
  readonly others?: ScriptSettings;
  readonly otherEngine?: Partial<Engine>;
  /** Of the model `demo`, instead of one that follows the settings. */
  readonly backends?: readonly PlayedBackend[];
  readonly model?: Partial<Model>;
  /** Bytes of the image at every address. */
  readonly image?: Buffer;
  /** Other processes are asked before a request is admitted. */
  readonly sharesLimits?: boolean;
  /** Called when a backend is asked, with what it follows. */
  readonly asked?: (script: ScriptSettings) => void;
}

/** What a run needs, with a model `demo` and one backend for those that serve in its place, which follow scripts. */
export function servicesFor(
  settings: ScriptSettings,
  { billing }: Pick<Counter, 'billing'>,
  {
    plans = [],
    others = settings,
    otherEngine = {},
    backends,
    model,
    image,
    sharesLimits = false,
    asked = () => {},
  }: ServicesOptions = {},
) {
  const own = backendsFor('demo', backends ?? [{ label: 'demo', script: settings }], asked);
  const pool = openBackendPool(own, { waitMaxMs: 1_000 });
  const otherPool = openBackendPool(
    backendsFor('other', [{ label: 'other', script: others, engine: otherEngine }], asked),
    {
      waitMaxMs: 1_000,
    },
  );
  const ended: Receipt[] = [];
  const counts = new WholeLimits(unused());
  if (sharesLimits) {
    const take = counts.take.bind(counts);
    Object.assign(counts, { take: async (claims: Parameters<typeof take>[0]) => await Promise.resolve(take(claims)) });
  }
  const gaps: number[] = [];
  const imageFetcher = new ImageFetcher();
  if (image !== undefined)
    imageFetcher.fetch = (_url, _settings, _at, count) => {
      count(image.length);
      return Promise.resolve(image);
    };
  return {
    counts,
    ended,
    backend: own[0]!,
    pool,
    /** Seconds between batches. */
    gaps,
    lease: {
      runtimeConfig: { catalog: new Catalog([{ ...demo, ...model }]), images: defaultFetchSettings },
      poolOf: (id: string) => (id === 'demo' ? pool : otherPool),
    } as unknown as RunningCall['lease'],
    limits: new Limits({ counts, concurrencyPerAccountMax: 64, plans }),
    billing,
    prices: { of: () => prices },
    imageFetcher,
    metrics: { chunkGaps: () => ({ observe: (seconds: number) => void gaps.push(seconds) }) },
    newId: uuid,
    promptCounts: new PromptCounts(),
    traffic: { ended: () => {} },
  };
}

export interface RequestOptions {
  readonly ended?: (receipt: Receipt) => void;
  readonly maxTokens?: number;
  readonly facts?: Partial<RunningCall>;
  /** Of the models that may serve in its place, in their order. */
  readonly otherPrices?: readonly Prices[];
  /** Fields of its body. */
  readonly body?: object;
  /** What becomes of its order before it runs. */
  readonly placed?: (order: Order) => Order;
  /** Called with it before it runs. */
  readonly begins?: (call: RunningCall) => void;
  /** Called when another model is looked for. */
  readonly looks?: () => void;
}

/** A request that begins when what is returned is called, as `http` runs it. `ended` is called with its receipt. */
export async function requestOf(
  services: ReturnType<typeof servicesFor>,
  accountId: string,
  signal: AbortSignal,
  {
    ended = () => {},
    maxTokens = 1_000,
    facts = {},
    otherPrices = [],
    body: fields = {},
    placed = (order) => order,
    begins = () => {},
    looks = () => {},
  }: RequestOptions = {},
): Promise<(deliver: TakeBatch) => Promise<void>> {
  const id = uuid();
  const call: RunningCall = {
    id,
    idHex: Buffer.from(id).toString('hex'),
    account: { id: accountId },
    key: { id: 'key_000000000000', accountId, userId: null, name: '', expiresAt: null },
    zdr: false,
    batchId: null,
    publicId: `req_${Buffer.from(id).toString('hex').slice(-12)}`,
    clientId: null,
    startedAt: Date.now(),
    begunMs: performance.now(),
    route: chatRoute,
    headers: {},
    lease: services.lease,
    signal,
    memory: { take: () => {}, give: () => {} },
    admitted: undefined,
    engineMs: 0,
    waits: undefined,
    trace: undefined,
    holdBytes: () => {},
    prepared: () => {},
    falls: () => {},
    ended: (receipt) => {
      services.ended.push(receipt);
      ended(receipt);
    },
    ...facts,
  };
  const body = { model: 'demo', max_tokens: maxTokens, messages: [{ role: 'user', content: 'hi' }], ...fields };
  // No directory is needed: the caller is known.
  const deciding = services as unknown as ServeServices;
  const order = placed(await placeOrder(await allow(body, chatRoute.dialect, call, deciding), call, deciding));
  const next = otherPrices.map((prices) => ({ ...order, model: { ...order.model, id: 'other' }, prices })).values();
  const fallbacks: Order['fallbacks'] = {
    next: async () => {
      looks();
      // As a count of its prompt would end.
      signal.throwIfAborted();
      return await Promise.resolve(next.next().value);
    },
  };
  begins(call);
  return (deliver) => run(otherPrices.length === 0 ? order : { ...order, fallbacks }, call, services, deliver);
}
