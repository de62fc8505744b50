import type { Point, RoundResult } from './round.ts';

/** All rounds as a Markdown table: one column for each contender, median (least–most) of the rounds in each cell. */
export function printTable(results: readonly RoundResult[]): string {
  const names = [...new Set(results.map(({ contender }) => contender))];
  const controls = new Map(
    results.filter(({ contender }) => contender === 'direct').map((result) => [result.round, result]),
  );
  const columns = names.map((name) => results.filter(({ contender }) => contender === name));
  const lines = rows.map((row) => {
    const cells = columns.map((rounds) =>
      cell(
        rounds.map((result) => row.value(result, controls.get(result.round))),
        row.digits,
      ),
    );
    return cells.every((text) => text === nothing) ? [] : [`| ${row.title} | ${cells.join(' | ')} |`];
  });
  return [
    `| | ${names.map((name, index) => `${name} (n=${columns[index]!.length})`).join(' | ')} |`,
    `|-|${names.map(() => '-:|').join('')}`,
    ...lines.flat(),
  ].join('\n');
}

interface Row {
  readonly title: string;
  readonly digits: number;
  readonly value: (result: RoundResult, control: RoundResult | undefined) => number | undefined;
}

const perSecond = (scenario: string): Row['value'] => from(scenario, ({ load }) => load.good / load.seconds);
const microsecondsEach = (scenario: string): Row['value'] =>
  from(scenario, ({ load, processorSeconds }) => processorSeconds && (processorSeconds * 1e6) / (load.good + load.bad));
const microsecondsPerToken = (scenario: string): Row['value'] =>
  from(scenario, ({ load, processorSeconds }) => processorSeconds && (processorSeconds * 1e6) / load.tokens);

const throughput = (scenario: string, title: string): readonly Row[] => [
  { title: `${title}: per second`, digits: 0, value: perSecond(scenario) },
  { title: `${title}: CPU µs each`, digits: 0, value: microsecondsEach(scenario) },
  { title: `${title}: share of its core`, digits: 2, value: from(scenario, ({ coreShare }) => coreShare) },
];

const addedMs = (scenario: string, title: string, us: (point: Point) => number): Row => ({
  title,
  digits: 2,
  value: added(scenario, us),
});

const paced = (streams: number): readonly Row[] => {
  const scenario = `paced-${streams}`;
  return [
    { title: `${streams} paced streams: CPU µs per chunk`, digits: 1, value: microsecondsPerToken(scenario) },
    addedMs(scenario, `${streams} paced streams: first token p50, ms`, ({ load }) => load.firstTokenUs.p50),
    addedMs(scenario, `${streams} paced streams: first token p99, ms`, ({ load }) => load.firstTokenUs.p99),
    addedMs(scenario, `${streams} paced streams: gap p99, ms`, ({ load }) => load.gapUs.p99),
  ];
};

const rows: readonly Row[] = [
  ...throughput('whole-json', 'whole answer, upstream sends JSON, 16 connections'),
  ...throughput('whole-sse', 'whole answer, upstream streams, 16 connections'),
  ...throughput('whole-crowd', 'whole answer, upstream streams, 128 connections'),
  addedMs('whole-rate', 'whole answer at 200/s: latency p50, ms', ({ load }) => load.latencyUs.p50),
  addedMs('whole-rate', 'whole answer at 200/s: latency p99, ms', ({ load }) => load.latencyUs.p99),
  {
    title: '64-chunk streams, unpaced: chunks per second',
    digits: 0,
    value: from('streams', ({ load }) => load.tokens / load.seconds),
  },
  { title: '64-chunk streams, unpaced: CPU µs each', digits: 0, value: microsecondsEach('streams') },
  ...paced(10),
  ...paced(50),
  ...paced(200),
  addedMs('kept-alive', 'kept-alive connection: first token p50, ms', ({ load }) => load.firstTokenUs.p50),
  {
    title: 'aborted streams passed on, %',
    digits: 0,
    value: from('aborts', ({ load, abortsPassedOn }) =>
      load.aborted === 0 ? undefined : (abortsPassedOn / load.aborted) * 100,
    ),
  },
  { title: 'memory when idle, MB', digits: 0, value: ({ idleMegabytes }) => idleMegabytes },
  { title: 'memory after the load, MB', digits: 0, value: ({ loadedMegabytes }) => loadedMegabytes },
  {
    title: 'cold start to the first answer, s',
    digits: 2,
    value: ({ coldStartMs }) => coldStartMs && coldStartMs / 1000,
  },
  {
    title: 'core used by others, worst scenario',
    digits: 2,
    value: ({ points }) => worst(Object.values(points).map(({ foreignShare }) => foreignShare)),
  },
  {
    title: 'bad or hung answers',
    digits: 0,
    value: ({ points }) => Object.values(points).reduce((sum, { load }) => sum + load.bad + load.hung, 0),
  },
];

function from(scenario: string, value: (point: Point) => number | undefined): Row['value'] {
  return ({ points }) => points[scenario] && value(points[scenario]);
}

/** Milliseconds; of the control itself, and of the others what they add to the control of the same round. */
function added(scenario: string, us: (point: Point) => number): Row['value'] {
  return (result, control) => {
    const point = result.points[scenario];
    const controlPoint = control?.points[scenario];
    if (point === undefined || point.load.good === 0) return undefined;
    if (result === control) return us(point) / 1000;
    return controlPoint && (us(point) - us(controlPoint)) / 1000;
  };
}

const worst = (shares: readonly (number | undefined)[]): number | undefined => {
  const known = shares.filter((share) => share !== undefined);
  return known.length === 0 ? undefined : Math.max(...known);
};

const nothing = '–';

function cell(values: readonly (number | undefined)[], digits: number): string {
  const known = values.filter((value) => value !== undefined).toSorted((a, b) => a - b);
  if (known.length === 0) return nothing;
  const print = (value: number): string =>
    value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const [least, most] = [print(known[0]!), print(known.at(-1)!)];
  return least === most ? least : `${print(median(known))} (${least}–${most})`;
}

/** Of numbers in order. */
export function median(sorted: readonly number[]): number {
  const middle = sorted.length / 2;
  return sorted.length % 2 === 1 ? sorted[Math.floor(middle)]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
