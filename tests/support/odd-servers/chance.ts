export type Random = () => number;

export const chance = (random: Random, share: number): boolean => random() < share;

export const pick = <T>(random: Random, values: readonly T[]): T => values[Math.floor(random() * values.length)]!;

export const between = (random: Random, min: number, max: number): number =>
  min + Math.floor(random() * (max - min + 1));
