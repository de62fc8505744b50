import { families } from './family.ts';
import { quick, scenarios, type Scenario } from './scenarios.ts';
import type { RoundResult } from './round.ts';
import { median } from './table.ts';

const compared = ['whole-sse', 'streams', 'paced-50'] as const;

/** Unmeasured: who comes first must not pay for what all of them run. */
const warmUps: readonly Scenario[] = [
  { name: 'warm-up-streams', mode: 'f', tokens: 64, paceMs: 0, connections: 8, seconds: 2 },
  { name: 'warm-up-whole', mode: 's', tokens: 8, paceMs: 0, connections: 16, seconds: 3 },
];

/** The loads that tell what a request and a chunk cost, for each family after the other, in another order each round. */
export const familyScenarios = (isQuick: boolean, round: number): readonly Scenario[] => {
  const first = round % families.length;
  const ordered = [...families.slice(first), ...families.slice(0, first)];
  return [
    ...warmUps.flatMap((one) => ordered.map((family) => ({ ...one, name: `${one.name}:${family.name}`, family }))),
    ...compared.flatMap((name) => {
      const scenario = scenarios.find((one) => one.name === name)!;
      return ordered.map((family): Scenario => {
        const own = { ...scenario, name: `${name}:${family.name}`, family, capacityFrom: undefined };
        return isQuick ? quick(own) : own;
      });
    }),
  ];
};

/** The most that a family may cost, as a multiple of chat. */
const ratioMax = 1.25;

/** Processor time of each family, and as a multiple of chat's in the same round; medians of the rounds. */
export function printFamilyTable(results: readonly RoundResult[]): string {
  const lines = compared.flatMap((name) => {
    const isWhole = name === 'whole-sse';
    const costs = families.map((family) =>
      results.map(({ points }) => {
        const point = points[`${name}:${family.name}`];
        if (point?.processorSeconds === undefined) return undefined;
        return (point.processorSeconds * 1e6) / (isWhole ? point.load.good : point.load.tokens);
      }),
    );
    const what = isWhole ? 'request' : 'chunk';
    const title = { 'whole-sse': 'whole answers', streams: 'unpaced streams', 'paced-50': '50 paced streams' }[name];
    return [
      `| ${title}: CPU µs per ${what} | ${costs.map((values) => cell(values)).join(' | ')} |`,
      `| … as a multiple of chat | ${costs.map((values) => cell(values.map((value, round) => ratio(value, costs[0]?.[round])))).join(' | ')} |`,
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
      const ratios = results.flatMap(({ points }) => {
        const cost = (of: string): number | undefined => {
          const point = points[`${name}:${of}`];
          return (
            point?.processorSeconds &&
            point.processorSeconds / (name === 'whole-sse' ? point.load.good : point.load.tokens)
          );
        };
        return ratio(cost(family.name), cost('chat')) ?? [];
      });
      const middle = median(ratios.toSorted((a, b) => a - b));
      return middle > ratioMax
        ? [`${name}: ${family.name} costs ${middle.toFixed(2)} × chat, the aim is ${ratioMax}`]
        : [];
    }),
  );
}

const ratio = (value: number | undefined, of: number | undefined): number | undefined =>
  value === undefined || of === undefined ? undefined : value / of;

function cell(values: readonly (number | undefined)[]): string {
  const known = values.filter((value) => value !== undefined).toSorted((a, b) => a - b);
  if (known.length === 0) return '–';
  const [least, most] = [known[0]!.toFixed(2), known.at(-1)!.toFixed(2)];
  return least === most ? least : `${median(known).toFixed(2)} (${least}–${most})`;
}
