import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';

import { dollars } from '../platform/dollars.ts';
import { checkNames, type CheckName } from './check-names.ts';
import { ask, type Answer, type Asking } from './ask.ts';
import { measure, notRun, noteForeign, type Happened, type Row, type Scene } from './measure.ts';
import { promptTokens, type Plan, type Truth } from './scripted-upstream.ts';
import { cost, estimated, exactly, sum, type Range } from './truth.ts';

/** One kind of thing that goes wrong between gateways and their ledgers. */
export type Check = (scene: Scene) => Promise<readonly Row[]>;

const atOnce = <Result>(count: number, run: (index: number) => Promise<Result>): Promise<readonly Result[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => run(index)));

const isStreamed = [true, false] as const;
const kindOf = (stream: boolean): string => (stream ? 'streamed' : 'whole');

/** The charge for what the upstream wrote to its end, as it reported it. */
const finishedCost = ({ prices }: Scene, { plan, finished }: Truth): bigint =>
  BigInt(finished) * cost(prices, plan.promptTokens, plan.completionTokens);

/** The charge for answers of which a part was written: from what their clients got to what the upstream wrote. */
function partRange(scene: Scene, truth: Truth, received: number): Range {
  const { prices } = scene;
  const { plan, asked, refused, finished, tokensSent } = truth;
  const parts = asked - refused - finished;
  const partTokens = tokensSent - finished * plan.completionTokens;
  const { least } = estimated(prices, plan.promptTokens, received, received);
  const { most } = estimated(prices, plan.promptTokens * Math.max(1, parts), 0, partTokens);
  const whole = finishedCost(scene, truth);
  return { least: received === 0 ? 0n : least, most: parts > 0 ? whole + most : whole };
}

/**
 * The same where clients leave: a gateway may let go of its upstream with them, before it has read the usage of an answer that the
 * upstream has written to its end, and then counts by itself.
 */
function leftRange(scene: Scene, truth: Truth, received: number): Range {
  const { least, most } = partRange(scene, truth, received);
  const counted = estimated(scene.prices, truth.plan.promptTokens, 0, truth.tokensSent).most;
  return { least, most: truth.finished > 0 && counted > most ? counted : most };
}

async function askAll(
  scene: Scene,
  truths: readonly Truth[],
  asking: Asking,
  key = scene.keys[0],
): Promise<readonly Answer[]> {
  const answers = await Promise.all(truths.map((truth) => ask(scene.gateway, key, truth, asking)));
  noteForeign(scene, answers);
  await scene.upstream.quiet(truths);
  return answers;
}

const plans = ({ upstream }: Scene, count: number, plan: Partial<Plan>): readonly Truth[] =>
  Array.from({ length: count }, () => upstream.plan(plan));

const answers: Check = (scene) =>
  eachRow(isStreamed, async (stream) => {
    const what = `${kindOf(stream)} answers`;
    return await measure(scene, { check: 'answers', what, key: scene.keys[0] }, async () => {
      const truths = plans(scene, 12, { paceMs: 2 });
      const got = await askAll(scene, truths, { stream });
      const bad = got.filter(({ isWhole }) => !isWhole);
      return {
        range: exactly(truths.reduce((all, truth) => all + finishedCost(scene, truth), 0n)),
        requests: truths.length,
        faults: bad.length === 0 ? [] : [`${bad.length} of 12 got no whole answer (status ${bad[0]?.status})`],
      };
    });
  });

async function eachRow<Item>(items: readonly Item[], run: (item: Item) => Promise<Row>): Promise<readonly Row[]> {
  const rows: Row[] = [];
  for (const item of items) rows.push(await run(item));
  return rows;
}

/** Many beside a short prompt, so that what is charged for them is told from an estimate of the prompt. */
const leavingTokens = 120;

/** How many tokens a client reads before it leaves. */
const leavingPoints = [
  [0, 'before the first token'],
  [1, 'after the first token'],
  [leavingTokens / 2, 'in the middle'],
  [leavingTokens - 1, 'before the last token'],
  [leavingTokens, 'after the last token'],
] as const;

const leaving: Check = async (scene) => {
  const check = 'leaving';
  const key = scene.keys[0];
  const rows = await eachRow(leavingPoints, async ([leaveAfter, where]) =>
    measure(scene, { check, what: `a stream, ${where}`, key }, () => left(scene, { stream: true, leaveAfter })),
  );
  const whole = await measure(scene, { check, what: 'a whole answer, while it is made', key }, () =>
    left(scene, { stream: false, leaveAfter: 0 }),
  );
  return [...rows, whole];
};

async function left(scene: Scene, asking: Asking): Promise<Happened> {
  const truths = plans(scene, 6, { promptTokens: 40, completionTokens: leavingTokens, paceMs: 5 });
  const got = await askAll(scene, truths, asking);
  const unread = truths.reduce((all, { tokensSent }, index) => all + tokensSent - (got[index]?.tokens ?? 0), 0);
  const written = truths.length * leavingTokens;
  return {
    range: sum(truths.map((truth, index) => leftRange(scene, truth, got[index]?.tokens ?? 0))),
    requests: truths.length,
    notes: unread * 2 > written ? [`the upstream wrote ${unread} tokens for clients that had left`] : [],
  };
}

type DoubledAsking = (scene: Scene, truth: Truth, idempotencyKey: string) => Promise<readonly Answer[]>;

const doubledWays: readonly (readonly [string, DoubledAsking])[] = [
  [
    'again with the same Idempotency-Key',
    async (scene, truth, idempotencyKey) => {
      const first = await askAll(scene, [truth], { stream: false, idempotencyKey });
      return [...first, ...(await askAll(scene, [truth], { stream: false, idempotencyKey }))];
    },
  ],
  [
    'four at once with the same Idempotency-Key',
    (scene, truth, idempotencyKey) => askAll(scene, [truth, truth, truth, truth], { stream: false, idempotencyKey }),
  ],
  [
    'again with the same Idempotency-Key, after the client had left its stream',
    async (scene, truth, idempotencyKey) => {
      await askAll(scene, [truth], { stream: true, leaveAfter: 4, idempotencyKey });
      return await askAll(scene, [truth], { stream: true, idempotencyKey });
    },
  ],
];

const doubled: Check = async (scene) => {
  const check = 'doubled';
  const key = scene.keys[0];
  const rows = await eachRow(doubledWays, async ([what, askTwice]) =>
    measure(scene, { check, what, key }, async () => {
      const truth = scene.upstream.plan({ paceMs: 5 });
      const got = await askTwice(scene, truth, randomUUID());
      const whole = got.filter(({ isWhole }) => isWhole).length;
      const each = finishedCost(scene, { ...truth, finished: 1 });
      const { most } = partRange(scene, truth, 0);
      return {
        range: { least: each * BigInt(Math.min(truth.finished, whole)), most },
        requests: truth.asked,
        faults: whole === got.length ? [] : [`${got.length - whole} of ${got.length} got no whole answer`],
        isNotOffered: truth.asked > 1,
        notes: truth.asked > 1 ? [`the upstream was asked ${truth.asked} times`] : [],
      };
    }),
  );
  const failing = await eachRow(isStreamed, async (stream) =>
    measure(scene, { check, what: `the upstream answers 503 first, ${kindOf(stream)}`, key }, async () => {
      const truths = plans(scene, 4, { refusals: 1 });
      const got = await askAll(scene, truths, { stream });
      const whole = got.filter(({ isWhole }) => isWhole).length;
      return {
        range: exactly(truths.reduce((all, truth) => all + finishedCost(scene, truth), 0n)),
        requests: truths.length,
        notes: whole === got.length ? [] : [`${got.length - whole} of ${got.length} clients got the error`],
      };
    }),
  );
  return [...rows, ...failing];
};

const lies: readonly (readonly [Plan['usage'], string])[] = [
  ['with-each-chunk', 'usage with each chunk, growing'],
  ['none', 'no usage'],
  ['zero', 'usage of 0 tokens'],
  ['negative', 'usage below 0'],
  ['beyond-limit', '1,000 times what max_tokens allows'],
];

const lying: Check = (scene) =>
  eachRow(
    lies.flatMap(([usage, what]) => isStreamed.map((stream) => ({ usage, what, stream }))),
    async ({ usage, what, stream }) =>
      measure(scene, { check: 'lying', what: `${what}, ${kindOf(stream)}`, key: scene.keys[0] }, async () => {
        const truths = plans(scene, 4, { usage });
        await askAll(scene, truths, { stream });
        return {
          range:
            usage === 'with-each-chunk'
              ? exactly(truths.reduce((all, truth) => all + finishedCost(scene, truth), 0n))
              : sum(
                  truths.map(({ plan, tokensSent, finished }) =>
                    finished === 0 ? exactly(0n) : estimated(scene.prices, plan.promptTokens, tokensSent, tokensSent),
                  ),
                ),
          requests: truths.length,
        };
      }),
  );

const dropping: Check = (scene) =>
  eachRow(
    (['cut', 'no-finish'] as const).flatMap((end) => isStreamed.map((stream) => ({ end, stream }))),
    async ({ end, stream }) => {
      const how = end === 'cut' ? 'the connection breaks' : 'the answer ends without a finish';
      return await measure(
        scene,
        { check: 'dropping', what: `${how}, ${kindOf(stream)}`, key: scene.keys[0] },
        async () => {
          const truths = plans(scene, 4, { end });
          const got = await askAll(scene, truths, { stream });
          const fooled = got.filter(({ isWhole }) => isWhole).length;
          return {
            range: sum(truths.map((truth) => partRange(scene, truth, 0))),
            requests: truths.reduce((all, { asked }) => all + asked, 0),
            faults: fooled === 0 ? [] : [`${fooled} of ${got.length} clients were given a part as the whole answer`],
          };
        },
      );
    },
  );

const stalling: Check = async (scene) => [
  await measure(
    scene,
    { check: 'stalling', what: '4 streams with a token each 100 ms', key: scene.keys[0] },
    async () => {
      const truths = plans(scene, 4, { completionTokens: 20, paceMs: 100 });
      const got = await askAll(scene, truths, { stream: true });
      const ways = truths.flatMap(({ sentAt }, index) =>
        sentAt.map((at, token) => (got[index]?.cameAt[token] ?? Infinity) - at),
      );
      const longestMs = Math.max(...ways);
      return {
        range: exactly(truths.reduce((all, truth) => all + finishedCost(scene, truth), 0n)),
        requests: truths.length,
        faults: longestMs > stallMs ? [`a token was ${Math.round(longestMs)} ms on its way`] : [],
        notes: [`the slowest token took ${longestMs.toFixed(1)} ms`],
      };
    },
  ),
];

const stallMs = 1000;

/** Requests that are refused cost nothing; those that are served are charged, and are not more than `most`. */
const rates: Check = async (scene) => {
  const { adapter, admin, requestsPerMinute: most } = scene;
  const [check, what, key] = ['rates', `${2 * most} requests at once, ${most} a minute allowed`, scene.keys[1]];
  if (adapter.setRequestsPerMinute === undefined)
    return [notRun(check, what, 'not offered', 'a key has no limit of requests a minute there')];
  await adapter.setRequestsPerMinute(admin, key, most);
  try {
    await awayFromMinute();
    return [await measure(scene, { check, what, key }, () => rated(scene, key, most))];
  } finally {
    await adapter.setRequestsPerMinute(admin, key, null);
  }
};

async function rated(scene: Scene, key: string, most: number): Promise<Happened> {
  const truths = plans(scene, 2 * most, { completionTokens: 4 });
  const begun = performance.now();
  const got = await askAll(scene, truths, { stream: false }, key);
  // A limit may allow more again as time passes, and requests of a slow machine come one after the other.
  const mayBe = most + Math.floor((most * (performance.now() - begun)) / 60_000);
  const served = got.filter(({ status }) => status === 200).length;
  const refused = got.filter(({ status }) => status === 429);
  const silent = refused.filter(({ retryAfter }) => retryAfter === null).length;
  const others = got.length - served - refused.length;
  return {
    range: exactly(truths.reduce((all, truth) => all + finishedCost(scene, truth), 0n)),
    requests: got.length,
    faults: [
      ...(served >= most && served <= mayBe ? [] : [`${served} were answered, of ${most} that may be`]),
      ...(others === 0 ? [] : [`${others} were neither answered nor refused with 429`]),
    ],
    notes: silent === 0 ? [] : [`${silent} refusals have no Retry-After`],
  };
}

/** Many limits count by the minute of the clock: two of them would allow twice as much. */
async function awayFromMinute(): Promise<void> {
  const left = 60_000 - (Date.now() % 60_000);
  await delay(left < 5_000 ? left + 500 : 1_500);
}

const budgets: Check = async (scene) => {
  const { adapter, admin } = scene;
  const [check, what, key] = ['budgets', 'requests at once at the edge of a budget', scene.keys[1]];
  if (adapter.setBudget === undefined) return [notRun(check, what, 'not offered', 'a key has no budget there')];
  const budget = await adapter.setBudget(admin, key, scene.budget);
  try {
    return [await measure(scene, { check, what, key }, () => atTheEdge(scene, key, budget))];
  } finally {
    await adapter.setBudget(admin, key, null);
  }
};

async function atTheEdge(scene: Scene, key: string, budget: bigint): Promise<Happened> {
  const tokens = tokensForATenth(scene, budget);
  const each = cost(scene.prices, promptTokens, tokens);
  const most = Number(budget / each);
  const truths = plans(scene, Math.min(100, 3 * Math.max(1, most)), { completionTokens: tokens, paceMs: 1 });
  const got = await askAll(scene, truths, { stream: false }, key);
  const served = truths.reduce((all, truth) => all + finishedCost(scene, truth), 0n);
  const answered = got.filter(({ isWhole }) => isWhole).length;
  const over = served - budget;
  return {
    range: exactly(served),
    requests: truths.length,
    faults: over > 0n ? [`${answered} were answered, of ${most} that it pays: ${dollars(over)} more`] : [],
    notes: [`${answered} of ${truths.length} were answered; the budget pays ${most}`],
  };
}

/** The tokens with which ten answers cost the budget, within what a model may be asked for. */
function tokensForATenth({ prices }: Scene, budget: bigint): number {
  const perAnswer = (budget * 1_000_000n) / 10n - BigInt(promptTokens) * prices.input;
  return Math.max(16, Math.min(4_000, Number(perAnswer / (prices.output === 0n ? 1n : prices.output))));
}

const restarts: Check = async (scene) => {
  const { restart } = scene;
  const [check, what, key] = ['restarts', 'killed under load, and started again', scene.keys[0]];
  if (restart === undefined) return [notRun(check, what, 'not run', 'no --restart-command was given')];
  return [await measure(scene, { check, what, key }, () => killed(scene, key, restart))];
};

async function killed(scene: Scene, key: string, restart: () => Promise<void>): Promise<Happened> {
  const all: { readonly truth: Truth; readonly answer: Answer }[] = [];
  let isOver = false;
  const load = atOnce(12, async (worker) => {
    while (!isOver) {
      const truth = scene.upstream.plan({ completionTokens: 10, paceMs: 10 });
      all.push({
        truth,
        answer: await ask(scene.gateway, key, truth, { stream: worker % 2 === 0, timeoutMs: 10_000 }),
      });
      if (all.at(-1)?.answer.status === 0) await delay(250);
    }
  });
  // Long enough that there is something to lose, on a slow machine too.
  await delay(2_000);
  const answered = (): number => all.filter(({ answer }) => answer.isWhole).length;
  for (let waited = 0; answered() < 24 && waited < 300; waited++) await delay(100);
  await restart();
  isOver = true;
  await load;
  const isBack = await answersAgain(scene, key, all);
  await scene.upstream.quiet(all.map(({ truth }) => truth));
  noteForeign(
    scene,
    all.map(({ answer }) => answer),
  );
  const whole = all.filter(({ answer }) => answer.isWhole);
  const cut = all.filter(({ truth, answer }) => truth.asked > 0 && !answer.isWhole).length;
  const of = ({ truth: { plan } }: (typeof all)[number]): bigint =>
    cost(scene.prices, plan.promptTokens, plan.completionTokens);
  return {
    range: {
      least: whole.reduce((sumOf, each) => sumOf + of(each), 0n),
      most: all.reduce((sumOf, each) => sumOf + of(each) * BigInt(each.truth.asked), 0n),
    },
    requests: all.reduce((sumOf, { truth }) => sumOf + truth.asked, 0),
    faults: isBack ? [] : ['it did not answer again within a minute'],
    notes: [`${whole.length} clients got a whole answer, ${cut} a broken one`],
  };
}

async function answersAgain(
  scene: Scene,
  key: string,
  all: { readonly truth: Truth; readonly answer: Answer }[],
): Promise<boolean> {
  const deadline = performance.now() + 60_000;
  while (performance.now() < deadline) {
    const truth = scene.upstream.plan({ completionTokens: 2 });
    const answer = await ask(scene.gateway, key, truth, { stream: false, timeoutMs: 10_000 });
    all.push({ truth, answer });
    if (answer.isWhole) return true;
    await delay(200);
  }
  return false;
}

const all: Readonly<Record<CheckName, Check>> = {
  ...{ rates, budgets, answers, leaving, doubled, lying, dropping, stalling, restarts },
};

/** Those of the names, else all. */
export const checksOf = (names: readonly string[] | undefined): readonly Check[] =>
  checkNames.filter((name) => names === undefined || names.includes(name)).map((name) => all[name]);
