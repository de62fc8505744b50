import { chat, families, type Family } from './family.ts';
import { scenarios, type Scenario } from './scenarios.ts';
import type { RoundResult } from './round.ts';
import { median } from './table.ts';

const compared = ['whole-sse', 'streams', 'paced-50'] as const;
type Compared = (typeof compared)[number];

/** Unmeasured: who comes first must not pay for what all of them run. */
const warmUps: readonly Scenario[] = [
  { name: 'warm-up-streams', mode: 'f', tokens: 64, paceMs: 0, connections: 8, seconds: 2 },
  { name: 'warm-up-whole', mode: 's', tokens: 8, paceMs: 0, connections: 16, seconds: 3 },
];

/** Turns that each family has at each load in a round: others' work on the machine comes and goes, and must meet all alike. */
const turns = 4;
const quickTurns = 2;

const pointName = (scenario: string, family: Family, turn: number): string => `${scenario}:${family.name}:${turn}`;

/** The loads that tell what a request and a chunk cost: short turns, the families one after the other in another order each. */
export const familyScenarios = (isQuick: boolean, round: number): readonly Scenario[] => [
  ...warmUps.flatMap((one) => families.map((family) => ({ ...one, name: `${one.name}:${family.name}`, family }))),
  ...compared.flatMap((name) => {
    const scenario = scenarios.find((one) => one.name === name)!;
    return Array.from({ length: isQuick ? quickTurns : turns }, (_, turn) =>
      inTurn(round + turn).map((family): Scenario => {
        const own = { name: pointName(name, family, turn), family, warmUpRequests: undefined, capacityFrom: undefined };
        return { ...scenario, ...own, seconds: scenario.seconds / 2 };
      }),
    ).flat();
  }),
];

/** Each begins once in four, and each comes after each of the others as often as before it. */
function inTurn(turn: number): readonly Family[] {
  const first = (turn >> 1) % families.length;
  const ordered = [...families.slice(first), ...families.slice(0, first)];
  return turn % 2 === 0 ? ordered : ordered.toReversed();
}

/** The most that a family may cost, as a multiple of chat. */
const ratioMax = 1.25;

/** Processor time of each family, and as a multiple of chat's in the same turn; medians of all turns. */
export function printFamilyTable(results: readonly RoundResult[]): string {
  const lines = compared.flatMap((name) => {
    const what = name === 'whole-sse' ? 'request' : 'chunk';
    const title = { 'whole-sse': 'whole answers', streams: 'unpaced streams', 'paced-50': '50 paced streams' }[name];
    return [
      `| ${title}: CPU µs per ${what} | ${families.map((family) => cell(costs(results, name, family))).join(' | ')} |`,
      `| … as a multiple of chat | ${families.map((family) => cell(ratios(results, name, family))).join(' | ')} |`,
    ];
  });
  return [
    `| | ${families.map(({ name }) => name).join(' | ')} |`,
    `|-|${families.map(() => '-:|').join('')}`,
    ...lines,
  ].join('\n');
}

/** Rows whose median is above the aim, in words; empty: none. */
export function aboveAim(results: readonly RoundResult[]): readonly string[] {
  return compared.flatMap((name) =>
    families.flatMap((family) => {
      const known = ratios(results, name, family).filter((value) => value !== undefined);
      const middle = median(known.toSorted((a, b) => a - b));
      return middle > ratioMax
        ? [`${name}: ${family.name} costs ${middle.toFixed(2)} × chat, the aim is ${ratioMax}`]
        : [];
    }),
  );
}

/** Microseconds of each turn. */
const costs = (results: readonly RoundResult[], name: Compared, family: Family): readonly (number | undefined)[] =>
  results.flatMap(({ points }) =>
    Array.from({ length: turns }, (_, turn) => {
      const point = points[pointName(name, family, turn)];
      if (point?.processorSeconds === undefined) return undefined;
      return (point.processorSeconds * 1e6) / (name === 'whole-sse' ? point.load.good : point.load.tokens);
    }),
  );

function ratios(results: readonly RoundResult[], name: Compared, family: Family): readonly (number | undefined)[] {
  const ofChat = costs(results, name, chat);
  return costs(results, name, family).map((value, index) => ratio(value, ofChat[index]));
}

const ratio = (value: number | undefined, of: number | undefined): number | undefined =>
  value === undefined || of === undefined ? undefined : value / of;

function cell(values: readonly (number | undefined)[]): string {
  const known = values.filter((value) => value !== undefined).toSorted((a, b) => a - b);
  if (known.length === 0) return '–';
  const [least, most] = [known[0]!.toFixed(2), known.at(-1)!.toFixed(2)];
  return least === most ? least : `${median(known).toFixed(2)} (${least}–${most})`;
}
