import type { Prepared } from './contender.ts';
import { chat, type Family } from './family.ts';

/** One kind of load. */
export interface Scenario {
  readonly name: string;
  /** What the upstream plays, see upstream.c. */
  readonly mode: 'j' | 's' | 'f' | 'p';
  readonly tokens: number;
  readonly paceMs: number;
  readonly connections: number;
  readonly seconds: number;
  /** It ends after so many, and then `seconds` is the most that it may take. */
  readonly requests?: number;
  /** Requests that are due in a second; absent: as many as are answered. */
  readonly ratePerSecond?: number;
  /** Of the answers, where they are refusals. */
  readonly status?: number;
  /** Share of the clients that leave in mid-answer. */
  readonly abortPercent?: number;
  /** Requests that are played before, unmeasured; the first of a round are those of `warmUps`. */
  readonly warmUpRequests?: number | undefined;
  /** Who is asked; absent: chat completions. */
  readonly family?: Family;
  /** The scenario that tells how many of these requests one core can carry; where it is too few, this one is left out. */
  readonly capacityFrom?: string | undefined;
}

const pacedTokens = 64;
const paceMs = 20;
const pacedSeconds = (pacedTokens * paceMs) / 1000;

const paced = (streams: number): Scenario => ({
  name: `paced-${streams}`,
  mode: 'p',
  tokens: pacedTokens,
  paceMs,
  // More than are ever in use, so that most streams come on a fresh connection.
  connections: Math.max(64, streams * 3),
  seconds: 4,
  warmUpRequests: 2 * streams,
  ratePerSecond: streams / pacedSeconds,
  capacityFrom: 'streams',
});

const whole = { mode: 's', tokens: 8, paceMs: 0 } as const;
const unpaced = { mode: 'f', tokens: pacedTokens, paceMs: 0, connections: 8 } as const;

/** What a start costs those who come first; it is played before anything else. */
export const coldThousand: Scenario = {
  name: 'cold-thousand',
  ...whole,
  connections: 16,
  seconds: 60,
  requests: 1_000,
};

/**
 * Played before everything but the cold scenario, unmeasured. By count: code that is new to V8 costs three times as much, a program that
 * takes twice as long for an answer would be half as warm after the same seconds, and ours changes until some 25,000 requests.
 */
export const warmUps: readonly Scenario[] = [
  { name: 'warm-up-whole', ...whole, connections: 128, seconds: 120, requests: 25_000 },
  { name: 'warm-up-streams', ...unpaced, seconds: 60, requests: 3_000 },
];

const wholeRate = (perSecond: number): Scenario => ({
  name: perSecond === 200 ? 'whole-rate' : `whole-rate-${perSecond}`,
  ...whole,
  connections: 64,
  seconds: 800 / perSecond,
  warmUpRequests: perSecond,
  ratePerSecond: perSecond,
  capacityFrom: 'whole-crowd',
});

export const scenarios: readonly Scenario[] = [
  coldThousand,
  { name: 'whole-json', mode: 'j', tokens: 150, paceMs: 0, connections: 16, seconds: 3, warmUpRequests: 2_000 },
  { name: 'whole-sse', ...whole, connections: 16, seconds: 3, warmUpRequests: 1_000 },
  // A durable commit takes milliseconds: a few connections wait for the disk, many share its commits and fill the core.
  { name: 'whole-crowd', ...whole, connections: 128, seconds: 3, warmUpRequests: 1_000 },
  wholeRate(50),
  wholeRate(200),
  { name: 'streams', ...unpaced, seconds: 3, warmUpRequests: 200 },
  paced(10),
  paced(50),
  paced(200),
  // One connection again and again, as the pools of client libraries do: shows a missing TCP_NODELAY as 40 ms.
  { name: 'kept-alive', mode: 'p', tokens: 8, paceMs, connections: 1, seconds: 3 },
  { name: 'aborts', mode: 'p', tokens: pacedTokens, paceMs, connections: 20, seconds: 2, abortPercent: 50 },
];

/** A third of the time: enough to see that everything works, too little for figures to publish. */
export const quick = (scenario: Scenario): Scenario =>
  scenario.requests === undefined
    ? { ...scenario, seconds: Math.max(1, scenario.seconds / 3) }
    : scenario === coldThousand
      ? scenario
      : { ...scenario, requests: Math.ceil(scenario.requests / 10) };

export const isStream = ({ mode }: Scenario): boolean => mode === 'f' || mode === 'p';

/** The bytes of the request, which every answer of a scenario is asked for with: about 1.6 kB, four messages. */
export function requestBytes(scenario: Scenario, { key, model }: Pick<Prepared, 'key' | 'model'>): string {
  const { path, headers: own, body: bodyOf } = scenario.family ?? chat;
  const marker = `[[u:${scenario.mode}:${scenario.tokens}:${scenario.paceMs}]]`;
  const turns = [
    { role: 'system', content: `You are a helpful assistant. ${passage}` },
    { role: 'user', content: `${marker} ${passage}${passage} What matters most?` },
    { role: 'assistant', content: `It depends. ${passage}` },
    { role: 'user', content: `Please explain in detail: ${passage}${passage}` },
  ] as const;
  const body = JSON.stringify({ model, ...bodyOf(turns, isStream(scenario)) });
  const headers = [
    `POST ${path} HTTP/1.1`,
    'host: 127.0.0.1',
    'content-type: application/json',
    `authorization: Bearer ${key}`,
    'user-agent: OpenAI/Python 1.50.0',
    'accept: application/json',
    ...own,
    `content-length: ${Buffer.byteLength(body)}`,
  ];
  return `${headers.join('\r\n')}\r\n\r\n${body}`;
}

const passage =
  'You are given a long passage and must answer briefly. The passage says that measured throughput depends on many details of the runtime, the kernel and the workload. ';
