/** Requests from their orders to their ends, in this process, over a real ledger. */
import { Catalog } from '../../../src/catalog/catalog.ts';
import type { Receipt } from '../../../src/billing/hold.ts';
import { scriptRule } from '../../../src/inference/engines/scripted/script-schema.ts';
import type { ScriptSettings } from '../../../src/inference/engines/scripted/script-schema.ts';
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

/** A backend that follows a script. */
function backendFor(name: string, settings: ScriptSettings): Backend {
  return {
    label: 'scripted',
    kind: 'scripted',
    provider: 'scripted',
    engine: createScriptedEngine({ name, contextLength: 4_096, scripts: [scriptRule(settings)] }),
    queueMax: 0,
    zdr: false,
    enforces: [],
    lacks: [],
    ...idleLoad(),
  };
}

/** What a run needs, with one backend for the model `demo` and one for those that serve in its place, which follow scripts. */
export function servicesFor(
  settings: ScriptSettings,
  { billing }: Pick<Counter, 'billing'>,
  { plans = [], others = settings }: { readonly plans?: readonly Plan[]; readonly others?: ScriptSettings } = {},
) {
  const backend = backendFor('demo', settings);
  const model = {
    id: 'demo',
    displayName: 'Demo',
    description: undefined,
    ownedBy: 'test',
    contextLength: 4_096,
    maxOutputTokens: null,
    prices,
    sampling: 'honor' as const,
    defaults: { system: undefined, sampling: {} },
    capabilities: textCapabilities,
    zdrCapabilities: textCapabilities,
    tier: undefined,
    deprecationDate: undefined,
  };
  const pool = openBackendPool([backend], { waitMaxMs: 1_000 });
  const otherPool = openBackendPool([backendFor('other', others)], { waitMaxMs: 1_000 });
  const ended: Receipt[] = [];
  const counts = new WholeLimits(unused());
  return {
    counts,
    ended,
    backend,
    lease: {
      runtimeConfig: { catalog: new Catalog([model]), images: defaultFetchSettings },
      poolOf: (id: string) => (id === 'demo' ? pool : otherPool),
    } as unknown as RunningCall['lease'],
    limits: new Limits({ counts, concurrencyPerAccountMax: 64, plans }),
    billing,
    prices: { of: () => prices },
    imageFetcher: new ImageFetcher(),
    metrics: { chunkGaps: () => ({ observe: () => {} }) },
    newId: uuid,
    promptCounts: new PromptCounts(),
    traffic: { ended: () => {} },
  };
}

interface RequestOptions {
  readonly ended?: (receipt: Receipt) => void;
  readonly maxTokens?: number;
  readonly facts?: Partial<RunningCall>;
  /** Of the models that may serve in its place, in their order. */
  readonly otherPrices?: readonly Prices[];
}

/** A request that begins when what is returned is called, as `http` runs it. `ended` is called with its receipt. */
export async function requestOf(
  services: ReturnType<typeof servicesFor>,
  accountId: string,
  signal: AbortSignal,
  { ended = () => {}, maxTokens = 1_000, facts = {}, otherPrices = [] }: RequestOptions = {},
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
  const body = { model: 'demo', max_tokens: maxTokens, messages: [{ role: 'user', content: 'hi' }] };
  // No directory is needed: the caller is known.
  const deciding = services as unknown as ServeServices;
  const order = await placeOrder(await allow(body, chatRoute.dialect, call, deciding), call, deciding);
  const next = otherPrices.map((prices) => ({ ...order, model: { ...order.model, id: 'other' }, prices })).values();
  const fallbacks: Order['fallbacks'] = { next: () => Promise.resolve(next.next().value) };
  return (deliver) => run(otherPrices.length === 0 ? order : { ...order, fallbacks }, call, services, deliver);
}
