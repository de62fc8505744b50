/** Input checks shared by several operations. Each throws OperationError. */
import { checkedText, OperationError } from './operation.ts';

const modelIdLengthMax = 128;
const modelsMax = 1000;

export const checkedName = (name: string): string => checkedText(name, 'A name', 100, 'name');

/** Drops undefined fields; what is left, but for removals, is checked. */
export function checkedChange(
  change: object,
  faultOf: (limits: object) => string | undefined,
): Readonly<Record<string, unknown>> {
  const changed = Object.entries(change).filter(([, value]) => value !== undefined);
  const fault = faultOf(Object.fromEntries(changed.filter(([, value]) => value !== null)));
  if (fault !== undefined) throw new OperationError(fault);
  return Object.fromEntries(changed);
}

/** Returns the id in lower case. */
export const checkedModel = (id: string): string =>
  checkedText(id, 'The id of a model', modelIdLengthMax).toLowerCase();

/** Returns the ids in lower case, sorted, without duplicates; null: all. */
export function checkedModels(models: readonly string[] | undefined): readonly string[] | null {
  if (models === undefined) return null;
  if (models.length > modelsMax) throw new OperationError(`At most ${modelsMax} models can be named.`);
  return [...new Set(models.map(checkedModel))].sort();
}
