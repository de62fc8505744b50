import { defaultableFields, defaultableNames, type SamplingDefaults } from '../generation/sampling-defaults.ts';

/** What a model uses when a request does not specify it (specification part 1: models "use their own defaults"). */
export interface ModelDefaults {
  /** The system message for conversations without one. */
  readonly system: string | undefined;
  readonly sampling: SamplingDefaults;
}

/** The configuration's defaults, completed field by field by those in the model's file. */
export const modelDefaults = (configured: ModelDefaults, inFile: SamplingDefaults = {}): ModelDefaults => ({
  system: configured.system,
  sampling: { ...inFile, ...configured.sampling },
});

/** Keyed by API field name; empty: all are neutral. */
export function defaultsOnCard({ system, sampling }: ModelDefaults): Readonly<Record<string, string | number>> {
  const fields = defaultableNames.flatMap((name) => {
    const value = sampling[defaultableFields[name].field];
    return value === undefined ? [] : [[name, value]];
  });
  return { ...(system === undefined ? {} : { system }), ...(Object.fromEntries(fields) as Record<string, number>) };
}
