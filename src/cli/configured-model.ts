import { OperationError } from '../accounts/operation.ts';
import { suggestion } from '../config/suggestion.ts';
import type { Context } from './context.ts';

/** Returns the ids as in the configuration; refuses unknown ones, because a misspelt id would silently apply to no model. */
export function configuredModels({ config }: Pick<Context, 'config'>, named: readonly string[]): readonly string[] {
  const ids = config.models.map(({ id }) => id);
  return named.map((name) => {
    const id = ids.find((known) => known.toLowerCase() === name.toLowerCase());
    if (id !== undefined) return id;
    const near = suggestion(name, ids);
    throw new OperationError(
      `The configuration has no model ${name}${near === undefined ? '' : `; did you mean ${near}?`}. List them with: tokenhouse models list`,
    );
  });
}
