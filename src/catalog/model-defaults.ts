import { defaultableFields, defaultableNames, type SamplingDefaults } from '../generation/sampling-defaults.ts';

/** What a model does where a request says nothing (specification part 1: models "use their own defaults"). */
export interface ModelDefaults {
  /** The text of the system message of a conversation that has none. */
  readonly system: string | undefined;
  readonly sampling: SamplingDefaults;
}

/** The configuration's defaults, and field by field those that the model's file states. */
export const modelDefaults = (configured: ModelDefaults, inFile: SamplingDefaults = {}): ModelDefaults => ({
  system: configured.system,
  sampling: { ...inFile, ...configured.sampling },
});

/** By the names of the wires; empty: everything is neutral. */
export function defaultsOnCard({ system, sampling }: ModelDefaults): Readonly<Record<string, string | number>> {
  const fields = defaultableNames.flatMap((name) => {
    const value = sampling[defaultableFields[name].field];
    return value === undefined ? [] : [[name, value]];
  });
  return { ...(system === undefined ? {} : { system }), ...(Object.fromEntries(fields) as Record<string, number>) };
}
