import { tmpdir } from 'node:os';
import { parseArgs } from 'node:util';
import { UsageError } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { machineFacts } from './machine.ts';
import { startPostgres } from './postgres.ts';
import { raisePriority } from './processes.ts';
import { inWaves } from './simulate/batches.ts';
import { faster, generateTrace, readTrace, type TracedRequest } from './simulate/trace.ts';
import { BatchClient, chatLine } from '../tests/support/batch-client.ts';
import { PacedServer, playArrivals, promptOf, quantile } from '../tests/support/paced-server.ts';
import type { Arrival, Played, Work } from '../tests/support/paced-server.ts';
import { mulberry32 } from '../tests/support/random.ts';
import { root } from '../tests/support/repository.ts';
import type { TestService } from '../tests/support/service.ts';
import { replicasOf } from '../tests/suites/postgres/replica-service.ts';

const usage = `npm run bench idle-slots [-- options]

What batches cost the others: three replicas on PostgreSQL with 8 slots each at a scripted server, the same interactive requests without and with a
batch that never ends, in turns.

  --trace FILE    a trace in Mooncake's form, instead of generated conversations with bursts
  --waves         every fifth request comes at the beginning of its half-minute
  --load N        the share of the slots that interactive requests take (default 0.4)
  --seconds N     how long a turn is (default 120)
  --rounds N      how many turns of each kind (default 3)
`;

const slots = 8;
const replicaCount = 3;
/** A server that reads 16,000 tokens a second and writes 100, in pieces of 40: what is measured is not the processor. */
const promptTokensPerMs = 16;
const pieceTokens = 40;
const pieceMs = 400;

const workOf = ({ promptTokens, answerTokens }: TracedRequest): Work => ({
  firstMs: Math.ceil(promptTokens / promptTokensPerMs),
  words: Math.ceil(answerTokens / pieceTokens),
});
const slotMsOf = ({ firstMs, words }: Work): number => firstMs + words * pieceMs;

await runCommand(main, usage);

async function main(args: readonly string[]): Promise<void> {
  const { trace: file, waves, load, seconds, rounds } = optionsOf(args);
  const isRaised = raisePriority();
  const facts = machineFacts({ root, dataFolder: tmpdir(), contenders: [], isRaised });
  const trace = file === undefined ? generated() : readTrace(file);
  const arrivals = arrivalsOf(trace, load, seconds, waves);
  const opened: (() => unknown)[] = [];
  const after = (close: () => unknown): void => void opened.push(close);
  try {
    const [database, paced] = await Promise.all([startPostgres(root), PacedServer.start(pieceMs)]);
    after(() => paced.close());
    after(() => database.dispose());
    const { replicas } = await replicasOf({ after }, database, {
      models: paced.models(slots, 100),
      firstCreditCents: '100000',
      environment: { TOKENHOUSE_SERVER__LIMITS__CONCURRENCY_PER_ACCOUNT_MAX: '500' },
    });
    const play = () => playArrivals(paced, replicas, arrivals, slots * replicaCount);
    // The first requests of a process compile what they use.
    const warm = Array.from({ length: 60 }, (_, index) => ({ firstMs: 50, words: 1, atMs: index * 50 }));
    await playArrivals(paced, replicas, warm, slots);
    const alone: Turn[] = [];
    const beside: Turn[] = [];
    for (let round = 0; round < rounds; round++)
      // The other one is first in the next round.
      for (const isBeside of round % 2 === 0 ? [false, true] : [true, false]) {
        say(`round ${round + 1} of ${rounds}, ${isBeside ? 'beside a batch' : 'alone'}`);
        const played = isBeside ? await besideBatch(replicas[0], trace, seconds, play) : await play();
        (isBeside ? beside : alone).push({ ...played, waited: waitedOf(replicas, played) });
      }
    say(`${arrivals.length} requests in ${seconds} s`);
    process.stdout.write(`${table(alone, beside)}\n\n${facts.map((fact) => `- ${fact}`).join('\n')}\n`);
  } finally {
    for (const close of opened.toReversed()) await close();
  }
  process.exit(0);
}

function optionsOf(args: readonly string[]) {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        trace: { type: 'string' },
        waves: { type: 'boolean', default: false },
        load: { type: 'string', default: '0.4' },
        seconds: { type: 'string', default: '120' },
        rounds: { type: 'string', default: '3' },
      },
    });
    const [load, seconds, rounds] = (['load', 'seconds', 'rounds'] as const).map((name) => Number(values[name]));
    if (!(load! > 0 && load! < 1 && seconds! >= 10 && rounds! >= 1))
      throw new UsageError('--load is between 0 and 1, --seconds 10 or more, --rounds 1 or more');
    return { ...values, load: load!, seconds: seconds!, rounds: rounds! };
  } catch (error) {
    throw error instanceof UsageError ? error : new UsageError((error as Error).message, { cause: error });
  }
}

function generated(): readonly TracedRequest[] {
  return generateTrace({ seconds: 600, conversationsPerSecond: 1, applications: 12, seed: 1 });
}

/** The beginning of the trace, as fast as gives that load. */
function arrivalsOf(
  trace: readonly TracedRequest[],
  load: number,
  seconds: number,
  isInWaves: boolean,
): readonly Arrival[] {
  const slotMs = trace.reduce((sum, request) => sum + slotMsOf(workOf(request)), 0);
  const times = (trace.at(-1)!.atMs * load * slots * replicaCount) / slotMs;
  const paced = faster(trace, times).filter(({ atMs }) => atMs < seconds * 1_000);
  return (isInWaves ? inWaves(paced) : paced).map((request) => ({ ...workOf(request), atMs: request.atMs }));
}

/** A turn beside a batch that has more lines than the turn can run, drawn from the trace, and which has begun. */
async function besideBatch(
  replica: TestService,
  trace: readonly TracedRequest[],
  seconds: number,
  play: () => Promise<Played>,
): Promise<Played> {
  const random = mulberry32(11);
  const client = new BatchClient(replica);
  const lines = Array.from({ length: Math.ceil(seconds * slots * replicaCount) }, (_, index) =>
    chatLine(`line-${index}`, promptOf('line', workOf(trace[Math.floor(random() * trace.length)]!))),
  );
  const { id } = await client.of(lines);
  await client.when(id, ({ request_counts: counts }) => counts.completed >= slots * replicaCount, 120_000);
  const played = await play();
  await client.cancel(id);
  await client.when(id, ({ status }) => status === 'cancelled', 120_000);
  return played;
}

interface Turn extends Played {
  /** How long the requests waited for a slot that had to, as the service has logged it. */
  readonly waited: readonly number[];
}

function waitedOf(replicas: readonly TestService[], { answers }: Played): readonly number[] {
  const own = new Set(answers.map(({ requestId }) => requestId));
  return replicas.flatMap(({ log }) =>
    log.flatMap(({ request_id: id, queue_ms: ms }) => (own.has(String(id)) && typeof ms === 'number' ? [ms] : [])),
  );
}

function table(alone: readonly Turn[], beside: readonly Turn[]): string {
  const firstTokens = ({ answers }: Turn): readonly number[] => answers.map(({ firstTokenMs }) => firstTokenMs);
  const rows: readonly (readonly [string, (turn: Turn) => number, unit: string])[] = [
    ['first token p50', (turn) => quantile(firstTokens(turn), 0.5), ' ms'],
    ['first token p99', (turn) => quantile(firstTokens(turn), 0.99), ' ms'],
    ['requests that waited for a slot', ({ waited }) => waited.length, ''],
    ['their wait p50', ({ waited }) => (waited.length === 0 ? 0 : quantile(waited, 0.5)), ' ms'],
    ['their wait p99', ({ waited }) => (waited.length === 0 ? 0 : quantile(waited, 0.99)), ' ms'],
    ['slots idle', ({ idleMs, lastMs }) => idleMs / lastMs, ''],
    ['of the idle slots, used', (turn) => (100 * turn.soldMs) / turn.idleMs, ' %'],
    [
      'of the idle slots, by lines that were answered',
      (turn) => (100 * (turn.soldMs - turn.thrownAwayMs)) / turn.idleMs,
      ' %',
    ],
    ['lines begun', ({ linesBegun }) => linesBegun, ''],
    ['lines that gave way', ({ linesStopped }) => linesStopped, ''],
  ];
  const cell = (turns: readonly Turn[], of: (turn: Turn) => number, unit: string): string => {
    const values = turns.map(of).toSorted((a, b) => a - b);
    const shown = (value: number): string =>
      unit === ' ms' ? value.toFixed(0) : value.toFixed(Number.isInteger(value) ? 0 : 1);
    const [least, median, most] = [values[0]!, values[Math.floor(values.length / 2)]!, values.at(-1)!].map(shown);
    return `${median}${unit} (${least}–${most})`;
  };
  const pooled = (turns: readonly Turn[], part: number): string => `${quantile(turns.flatMap(firstTokens), part)} ms`;
  return [
    '| median of the turns (least–most) | alone | beside a batch |',
    '|-|-:|-:|',
    ...rows.map(([name, of, unit]) => `| ${name} | ${cell(alone, of, unit)} | ${cell(beside, of, unit)} |`),
    ...[0.5, 0.9, 0.99].map(
      (part) => `| first token p${part * 100} of all turns | ${pooled(alone, part)} | ${pooled(beside, part)} |`,
    ),
  ].join('\n');
}
