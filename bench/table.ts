import type { Point, RoundResult } from './round.ts';

/**
 * All rounds as a Markdown table: one column for each contender, median (least–most) of the rounds in each cell. `against` names
 * contenders that ours is divided by, round by round, where a row is a cost.
 */
export function printTable(results: readonly RoundResult[], against: readonly string[] = []): string {
  const names = [...new Set(results.map(({ contender }) => contender))];
  const controls = new Map(
    results.filter(({ contender }) => contender === 'direct').map((result) => [result.round, result]),
  );
  const divided = names.includes(ours) ? against.filter((name) => names.includes(name)) : [];
  const columns = names.map((name) => results.filter(({ contender }) => contender === name));
  const lines = rows.map((row) => {
    const cells = columns.map((rounds) =>
      cell(
        rounds.map((result) => row.value(result, controls.get(result.round))),
        row.digits,
      ),
    );
    const ratios = divided.map((name) => (row.isCost === true ? ratioCell(results, row, name) : nothing));
    return cells.every((text) => text === nothing) ? [] : [`| ${row.title} | ${[...cells, ...ratios].join(' | ')} |`];
  });
  return [
    `| | ${[...names.map((name, index) => `${name} (n=${columns[index]!.length})`), ...divided.map((name) => `ours ÷ ${name}`)].join(' | ')} |`,
    `|-|${[...names, ...divided].map(() => '-:|').join('')}`,
    ...lines.flat(),
  ].join('\n');
}

interface Row {
  readonly title: string;
  readonly digits: number;
  /** Less is better, and none is zero: ratios mean something. */
  readonly isCost?: true;
  readonly value: (result: RoundResult, control: RoundResult | undefined) => number | undefined;
}

const perSecond = (scenario: string): Row['value'] => from(scenario, ({ load }) => load.good / load.seconds);
const microsecondsEach = (scenario: string): Row['value'] =>
  from(scenario, ({ load, processorSeconds }) => processorSeconds && (processorSeconds * 1e6) / (load.good + load.bad));
const microsecondsPerToken = (scenario: string): Row['value'] =>
  from(scenario, ({ load, processorSeconds }) => processorSeconds && (processorSeconds * 1e6) / load.tokens);

const throughput = (scenario: string, title: string): readonly Row[] => [
  { title: `${title}: per second`, digits: 0, value: perSecond(scenario) },
  { title: `${title}: CPU µs each`, digits: 0, isCost: true, value: microsecondsEach(scenario) },
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
    {
      title: `${streams} paced streams: CPU µs per chunk`,
      digits: 1,
      isCost: true,
      value: microsecondsPerToken(scenario),
    },
    addedMs(scenario, `${streams} paced streams: first token p50, ms`, ({ load }) => load.firstTokenUs.p50),
    addedMs(scenario, `${streams} paced streams: first token p99, ms`, ({ load }) => load.firstTokenUs.p99),
    addedMs(scenario, `${streams} paced streams: gap p99, ms`, ({ load }) => load.gapUs.p99),
  ];
};

const rate = (scenario: string, title: string): readonly Row[] => [
  { title: `${title}: CPU µs each`, digits: 0, isCost: true, value: microsecondsEach(scenario) },
  addedMs(scenario, `${title}: latency p50, ms`, ({ load }) => load.latencyUs.p50),
  addedMs(scenario, `${title}: latency p99, ms`, ({ load }) => load.latencyUs.p99),
];

const rows: readonly Row[] = [
  ...throughput('whole-json', 'whole answer, upstream sends JSON, 16 connections'),
  ...throughput('whole-sse', 'whole answer, upstream streams, 16 connections'),
  ...throughput('whole-crowd', 'whole answer, upstream streams, 128 connections'),
  ...rate('whole-rate-50', 'whole answer at 50/s'),
  ...rate('whole-rate', 'whole answer at 200/s'),
  {
    title: '64-chunk streams, unpaced: chunks per second',
    digits: 0,
    value: from('streams', ({ load }) => load.tokens / load.seconds),
  },
  { title: '64-chunk streams, unpaced: CPU µs each', digits: 0, isCost: true, value: microsecondsEach('streams') },
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
  { title: 'first thousand answers: CPU µs each', digits: 0, isCost: true, value: microsecondsEach('cold-thousand') },
  {
    title: 'cold start to the first answer, s',
    digits: 2,
    isCost: true,
    value: ({ coldStartMs }) => coldStartMs && coldStartMs / 1000,
  },
  { title: 'start until it is idle: CPU s', digits: 2, isCost: true, value: ({ startSeconds }) => startSeconds },
  { title: 'memory when idle, MB', digits: 0, isCost: true, value: ({ idleMegabytes }) => idleMegabytes },
  { title: 'memory after the load, MB', digits: 0, isCost: true, value: ({ loadedMegabytes }) => loadedMegabytes },
  { title: 'idle: share of a core, %', digits: 2, value: ({ idleShare }) => idleShare && idleShare * 100 },
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

const ours = 'tokenhouse';

/** Ours as a multiple of another's in the same round; undefined in rounds where one of them has none. */
function ratioCell(results: readonly RoundResult[], row: Row, name: string): string {
  const of = (contender: string, round: number): number | undefined => {
    const result = results.find((one) => one.contender === contender && one.round === round);
    return result && row.value(result, undefined);
  };
  const rounds = [...new Set(results.map(({ round }) => round))];
  const ratios = rounds.map((round) => {
    const [own, other] = [of(ours, round), of(name, round)];
    return own === undefined || other === undefined || other === 0 ? undefined : own / other;
  });
  return cell(ratios, 2);
}

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
