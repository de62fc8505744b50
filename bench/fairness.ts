import { tmpdir } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { UsageError } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { machineFacts } from './machine.ts';
import { raisePriority } from './processes.ts';
import { PacedServer, promptOf, promptTokens, quantile, streamed, type Run } from '../tests/support/paced-server.ts';
import { root } from '../tests/support/repository.ts';
import { TestService } from '../tests/support/service.ts';

const usage = `npm run bench fairness [-- options]

What an account with many waiting requests costs fifty others that come at once with one request each, at a scripted server with 8 slots. In
turns: without that account, with its requests in the 8 slots and none that waits, and with all the others of it behind these.

  --greedy N   the requests of that account (default 1000)
  --rounds N   how many turns of each kind (default 3)
`;

const slots = 8;
const others = 50;
const pieceMs = 200;
const work = { firstMs: pieceMs, words: 5 };

await runCommand(main, usage);

async function main(args: readonly string[]): Promise<void> {
  const { greedy, rounds } = optionsOf(args);
  const isRaised = raisePriority();
  const facts = machineFacts({ root, dataFolder: tmpdir(), contenders: [], isRaised });
  const paced = await PacedServer.start(pieceMs);
  const service = new TestService({
    config: paced.models(slots, 2 * greedy),
    firstCreditCents: '100000',
    limits: `  concurrency_per_account_max: ${2 * greedy}\n  requests_running_max: ${4 * greedy}`,
  });
  try {
    await service.start();
    const keys = await accountsOf(service);
    const turns = new Map<number, Turn[]>([0, slots, greedy].map((count) => [count, []]));
    const counts = [...turns.keys()];
    // Also what the service compiles at its first requests.
    await play(paced, service, keys, slots);
    for (let round = 0; round < rounds; round++)
      for (const count of round % 2 === 0 ? counts : counts.toReversed()) {
        say(`round ${round + 1} of ${rounds}: ${count} requests of one account, then ${others} of others`);
        turns.get(count)!.push(await play(paced, service, keys, count));
      }
    process.stdout.write(`${table(turns)}\n\n${facts.map((fact) => `- ${fact}`).join('\n')}\n`);
  } finally {
    await service.dispose();
    await paced.close();
  }
  process.exit(0);
}

function optionsOf(args: readonly string[]): { readonly greedy: number; readonly rounds: number } {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { greedy: { type: 'string', default: '1000' }, rounds: { type: 'string', default: '3' } },
    });
    const [greedy, rounds] = [Number(values.greedy), Number(values.rounds)];
    if (!(greedy > slots && rounds >= 1)) throw new UsageError(`--greedy is more than ${slots}, --rounds 1 or more`);
    return { greedy, rounds };
  } catch (error) {
    throw error instanceof UsageError ? error : new UsageError((error as Error).message, { cause: error });
  }
}

/** A key of each of the others. */
async function accountsOf(service: TestService): Promise<readonly string[]> {
  const made = await service.command('keys', 'create', '--role', 'admin', '--operator', '--json');
  const { key: operator } = JSON.parse(made.stdout) as { readonly key: string };
  const keys: string[] = [];
  for (let number = 0; number < others; number++) {
    const answer = await fetch(`${service.accountUrl}/v1/admin/accounts`, {
      method: 'POST',
      headers: { authorization: `Bearer ${operator}`, 'content-type': 'application/json' },
      body: JSON.stringify({ name: `other ${number}`, credit_cents: 1_000, key_name: 'key' }),
    });
    if (!answer.ok) throw new Error(await answer.text());
    keys.push(((await answer.json()) as { readonly key: string }).key);
  }
  return keys;
}

/** Of each request of the others. */
interface Turn {
  /** Tokens of the requests that began between its arrival and its beginning. */
  readonly tokens: readonly number[];
  readonly firstTokenMs: readonly number[];
  /** Requests of the greedy account among them, until the last of the others began. */
  readonly greedyBegun: number;
}

async function play(paced: PacedServer, service: TestService, keys: readonly string[], greedy: number): Promise<Turn> {
  const leaving = new AbortController();
  const ofGreedy = Array.from({ length: greedy }, () =>
    streamed(service, promptOf('greedy', work), { signal: leaving.signal }).catch((error: unknown) => {
      if (!leaving.signal.aborted) throw error;
    }),
  );
  const isRunning = ({ endedMs }: Run): boolean => endedMs === Infinity;
  const running = (): number => paced.runs.filter(isRunning).length;
  await until(async () => (await waitingOf(service)) === Math.max(0, greedy - slots));
  await until(() => Promise.resolve(running() === Math.min(greedy, slots)));
  const begun = paced.runs.length;
  const answers = await Promise.all(keys.map((key) => streamed(service, promptOf('other', work), { key })));
  const runs = paced.runs.slice(begun);
  leaving.abort();
  await Promise.all(ofGreedy);
  await until(async () => (await waitingOf(service)) === 0);
  await until(() => Promise.resolve(running() === 0));
  const places = runs.flatMap(({ of }, place) => (of === 'other' ? [place] : []));
  return {
    tokens: places.map((place) => place * (promptTokens + work.words)),
    firstTokenMs: answers.map(({ firstTokenMs }) => firstTokenMs),
    greedyBegun: places.at(-1)! + 1 - others,
  };
}

async function waitingOf({ accountUrl }: TestService): Promise<number> {
  const text = await (await fetch(`${accountUrl}/metrics`)).text();
  const counts = [...text.matchAll(/^tokenhouse_model_waiting\{[^}]*\} (\d+)/gm)].map(([, count]) => Number(count));
  return counts.reduce((sum, count) => sum + count, 0);
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await delay(20);
}

function table(turns: ReadonlyMap<number, readonly Turn[]>): string {
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  const rows: readonly (readonly [string, (turn: Turn) => number])[] = [
    ['tokens served before theirs, mean', ({ tokens }) => mean(tokens)],
    ['… the last one', ({ tokens }) => Math.max(...tokens)],
    ['requests of the one account begun before the last one', ({ greedyBegun }) => greedyBegun],
    ['first token, mean, ms', ({ firstTokenMs }) => mean(firstTokenMs)],
    ['first token, median, ms', ({ firstTokenMs }) => quantile(firstTokenMs, 0.5)],
    ['… the last one, ms', ({ firstTokenMs }) => Math.max(...firstTokenMs)],
  ];
  const cell = (of: readonly number[]): string => {
    const sorted = of.toSorted((a, b) => a - b).map((value) => Math.round(value));
    return `${sorted[Math.floor(sorted.length / 2)]} (${sorted[0]}–${sorted.at(-1)})`;
  };
  return [
    `| of the ${others} others | ${[...turns.keys()].map((count) => `the one has ${count} requests`).join(' | ')} |`,
    `|-|${[...turns.keys()].map(() => '-:|').join('')}`,
    ...rows.map(([name, of]) => `| ${name} | ${[...turns.values()].map((all) => cell(all.map(of))).join(' | ')} |`),
  ].join('\n');
}
