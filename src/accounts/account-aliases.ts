/** Names that one account has for models, in addition to those of the configuration: nobody else sees or can use them. */
import Type from 'typebox';

import type { Input } from './request-schema.ts';
import { text } from './request-schema.ts';

export const accountAliasSchema = Type.Object({
  name: text,
  /** The id of the model. */
  model: text,
  /** Whether the account's list of models has a card of this name. */
  listed: Type.Boolean(),
  /** What answers to requests of this name say: the model's id, or this name. */
  answers: Type.Enum(['model', 'alias']),
});
export type AccountAlias = Input<typeof accountAliasSchema>;

/** An account's names are read with each of its keys. */
export const aliasesMax = 100;

const namePattern = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$/;

/** Describes what is wrong with names, by themselves; undefined if nothing is. */
export function faultOfAliases(aliases: readonly AccountAlias[]): string | undefined {
  if (aliases.length > aliasesMax) return `An account has at most ${aliasesMax} names of its own for models.`;
  const names = new Set<string>();
  for (const { name, model } of aliases) {
    const wrong = [name, model].find((each) => !namePattern.test(each));
    if (wrong !== undefined) return `"${wrong.slice(0, 60)}" is not a name of a model.`;
    if (names.has(name.toLowerCase())) return `The name "${name}" is given twice.`;
    names.add(name.toLowerCase());
  }
  return undefined;
}

interface NamedModel {
  readonly id: string;
  readonly aliases: readonly { readonly name: string }[];
}

/** The first of the names that the configuration has already, or whose model it does not have. */
export function conflictOfAliases(
  aliases: readonly AccountAlias[],
  models: readonly NamedModel[],
): { readonly index: number; readonly fault: string } | undefined {
  const ids = new Set(models.map(({ id }) => id.toLowerCase()));
  const taken = new Map(
    models.flatMap(({ id, aliases: others }) =>
      [id, ...others.map(({ name }) => name)].map((name) => [name.toLowerCase(), id]),
    ),
  );
  for (const [index, { name, model }] of aliases.entries()) {
    const owner = taken.get(name.toLowerCase());
    if (owner !== undefined)
      return {
        index,
        fault: `"${name}" is ${owner.toLowerCase() === name.toLowerCase() ? 'a model' : `a name of ${owner}`} in the configuration, which goes first: choose another name.`,
      };
    if (!ids.has(model.toLowerCase())) return { index, fault: `The configuration has no model ${model}.` };
  }
  return undefined;
}
