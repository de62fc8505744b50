/**
 * What a form has otherwise than it was. The rest is not sent: it stays as it is, also where the form shows it rounded or somebody has
 * changed it meanwhile, and the audit log has what was changed alone. The order of a list is none.
 */
export const changesOf = <Body extends object>(
  now: Body,
  before: Readonly<Record<keyof Body, unknown>>,
): Partial<Body> =>
  Object.fromEntries(
    Object.entries(now).filter(([name, value]) => written(value) !== written(before[name as keyof Body])),
  ) as Partial<Body>;

const written = (value: unknown): string => JSON.stringify(Array.isArray(value) ? value.toSorted() : (value ?? null));
