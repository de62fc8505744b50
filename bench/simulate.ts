import { parseArgs } from 'node:util';
import { UsageError } from './arguments.ts';
import { runCommand } from './command.ts';
import { policies } from './simulate/policies.ts';
import { flapping, runFleet, type Figures, type FleetShape } from './simulate/run-fleet.ts';
import { faster, generateTrace, readTrace, type TracedRequest } from './simulate/trace.ts';

const usage = `npm run bench simulate -- [options]

  --trace FILE           a trace in Mooncake's form, instead of a generated one
  --servers N            one fleet of so many servers, instead of the usual settings
  --load N               so many times as fast as the trace says (default 1)
  --cache-blocks N       blocks of 512 tokens that a server keeps (default 2000)
  --tokens-per-second N  prompt tokens that a server reads in a second (default 8000)
  --policies NAMES       some of them, separated by semicolons
  --slow N               the first server reads so many times as slowly as the others
  --flapping             the first server comes and goes: five seconds there, two away
  --outages              kill a server in ten in the middle, for a minute
  --queues               the order of the queue instead: fair, first come first served, and by tiers with promotion
  --batches              interactive requests without and with batches beside them: idle slots, tiers with promotion, first come first served
  --cost                 what choosing among 1,000 backends costs, in this process
`;

interface Setting {
  readonly name: string;
  readonly trace: readonly TracedRequest[];
  readonly shape: FleetShape;
}

const head = [
  '| policy | cached | imbalance | first token p50 | p90 | p99 | failover | comeback | failed | cut | of the first server | its p99 |',
  '|-|-:|-:|-:|-:|-:|-:|-:|-:|-:|-:|-:|',
].join('\n');

await runCommand(async (args) => {
  const { values } = parsed(args);
  if (values.cost) {
    const { measureCost } = await import('./simulate/cost.ts');
    process.stdout.write(`${measureCost()}\n`);
    return;
  }
  if (values.queues) {
    const { compareQueues } = await import('./simulate/queues.ts');
    for (const servers of values.servers === undefined ? [16, 64] : [positive('--servers', values.servers)]) {
      const trace = queueTrace(values, servers, '1.5');
      process.stdout.write(`\n${servers} servers, ${trace.length} requests\n\n${compareQueues(trace, servers)}\n`);
    }
    return;
  }
  if (values.batches) {
    const { compareBatches, inWaves } = await import('./simulate/batches.ts');
    for (const servers of values.servers === undefined ? [16, 64] : [positive('--servers', values.servers)]) {
      const trace = queueTrace(values, servers);
      for (const [name, played] of [
        ['', trace],
        [', every fifth in waves', inWaves(trace)],
      ] as const)
        process.stdout.write(
          `\n${servers} servers, ${trace.length} requests${name}\n\n${compareBatches(played, servers)}\n`,
        );
    }
    return;
  }
  for (const { name, trace, shape } of settingsOf(values)) {
    process.stdout.write(`\n${name}: ${trace.length} requests${servedOf(trace)}\n\n${head}\n`);
    for (const [policy, policyOf] of Object.entries(policies))
      if (values.policies?.split(';').includes(policy) ?? true)
        process.stdout.write(`${line(policy, runFleet(trace, shape, policyOf))}\n`);
  }
}, usage);

/** What was cached when the trace was recorded, where it says that. */
function servedOf(trace: readonly TracedRequest[]): string {
  if (trace.some(({ cachedTokens }) => cachedTokens === undefined)) return '';
  const sum = (of: (request: TracedRequest) => number): number => trace.reduce((total, each) => total + of(each), 0);
  const share = sum(({ cachedTokens = 0 }) => cachedTokens) / sum(({ promptTokens }) => promptTokens);
  return `, of whose prompts ${(100 * share).toFixed(1)} % were cached when they were served`;
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        trace: { type: 'string' },
        servers: { type: 'string' },
        load: { type: 'string' },
        'cache-blocks': { type: 'string' },
        'tokens-per-second': { type: 'string' },
        policies: { type: 'string' },
        slow: { type: 'string' },
        flapping: { type: 'boolean', default: false },
        outages: { type: 'boolean', default: false },
        queues: { type: 'boolean', default: false },
        batches: { type: 'boolean', default: false },
        cost: { type: 'boolean', default: false },
      },
    });
  } catch (error) {
    throw new UsageError((error as Error).message, { cause: error });
  }
}

/** The trace of the file, or a chat service with bursts; `load` grows with the servers. */
function queueTrace(
  { trace, load: written }: ReturnType<typeof parsed>['values'],
  servers: number,
  usual = '1',
): readonly TracedRequest[] {
  const load = positive('--load', written ?? usual);
  if (trace !== undefined) return faster(readTrace(trace), load);
  return generateTrace({
    seconds: 600,
    conversationsPerSecond: (servers * load) / 6,
    applications: 4 * servers,
    seed: 1,
  });
}

function settingsOf(values: ReturnType<typeof parsed>['values']): readonly Setting[] {
  const source = values.trace === undefined ? undefined : readTrace(values.trace);
  const traceFor = (servers: number, load: number): readonly TracedRequest[] =>
    source === undefined
      ? generateTrace({
          seconds: 600,
          conversationsPerSecond: (servers * load) / 12,
          applications: 4 * servers,
          seed: 1,
        })
      : faster(source, load);
  const setting = (servers: number, load: number, cacheBlocks: number, tokensPerSecond: number): Setting => {
    const trace = traceFor(servers, load);
    const endMs = trace.at(-1)!.atMs;
    const middleMs = endMs / 2;
    const dying = values.outages ? Math.ceil(servers / 10) : 0;
    return {
      name: `${servers} servers, ${load} × the load, ${cacheBlocks} blocks, ${tokensPerSecond} tokens/s`,
      trace,
      shape: {
        servers,
        cacheBlocks,
        tokensPerSecond,
        speeds: { 0: 1 / positive('--slow', values.slow ?? '1') },
        outages: [
          ...Array.from({ length: dying }, (_, server) => ({ server, fromMs: middleMs, toMs: middleMs + 60_000 })),
          ...(values.flapping ? flapping(endMs) : []),
        ],
      },
    };
  };
  if (values.servers !== undefined)
    return [
      setting(
        positive('--servers', values.servers),
        positive('--load', values.load ?? '1'),
        positive('--cache-blocks', values['cache-blocks'] ?? '2000'),
        positive('--tokens-per-second', values['tokens-per-second'] ?? '8000'),
      ),
    ];
  // Those of the comparison that the policy was chosen by; 1,000 servers only with a trace that grows with them.
  const usual = [setting(16, 1, 2_000, 8_000), setting(16, 4, 2_000, 8_000), setting(64, 8, 500, 8_000)];
  return source === undefined ? [...usual, setting(1_000, 1, 2_000, 8_000)] : usual;
}

function positive(option: string, text: string): number {
  const value = Number(text);
  if (!(value > 0 && value <= 1e6)) throw new UsageError(`${option} must be a number from above 0 to 1,000,000`);
  return value;
}

function line(policy: string, figures: Figures): string {
  const seconds = (value: number): string => `${value.toFixed(value < 10 ? 2 : 0)} s`;
  const cells = [
    policy,
    `${(100 * figures.hitRate).toFixed(1)} %`,
    figures.imbalance.toFixed(2),
    ...[figures.p50, figures.p90, figures.p99].map(seconds),
    ...[figures.failover, figures.comeback].map((value) => (value === 0 ? '–' : seconds(value))),
    String(figures.failed),
    String(figures.cut),
    `${(100 * figures.firstShare).toFixed(2)} %`,
    seconds(figures.firstP99),
  ];
  return `| ${cells.join(' | ')} |`;
}
