/** What servers list, read as if anybody could have written it. */
const modelsMax = 1_000;

/** Returns the ids in a list of models; empty if it is not a valid list. */
export const listedModels = (text: string): readonly string[] => modelsOf(parsed(text));

export function modelsOf(body: unknown): readonly string[] {
  return entriesOf(body)
    .map((entry) => entry['id'])
    .filter(isPrintable)
    .slice(0, modelsMax);
}

/** Returns whether an id may be shown to a person. */
export const isPrintable = (id: unknown): id is string => typeof id === 'string' && /^[\x20-\x7e]{1,256}$/.test(id);

export function entriesOf(body: unknown): readonly Readonly<Record<string, unknown>>[] {
  const data = isObject(body) ? body['data'] : undefined;
  return Array.isArray(data) ? data.filter(isObject) : [];
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
