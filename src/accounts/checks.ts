/** Input checks shared by several operations. Each throws OperationError. */
import { checkedText, OperationError } from './operation.ts';

const modelIdLengthMax = 128;
const modelsMax = 1000;

export const checkedName = (name: string): string => checkedText(name, 'A name', 100, 'name');

/** Returns the id in lower case. */
export const checkedModel = (id: string): string =>
  checkedText(id, 'The id of a model', modelIdLengthMax).toLowerCase();

/** Returns the ids in lower case, sorted, without duplicates; null: all. */
export function checkedModels(models: readonly string[] | undefined): readonly string[] | null {
  if (models === undefined) return null;
  if (models.length > modelsMax) throw new OperationError(`At most ${modelsMax} models can be named.`);
  return [...new Set(models.map(checkedModel))].sort();
}
