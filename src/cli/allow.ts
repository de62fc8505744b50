import type { OperationAnswer } from '../accounts/operations.ts';
import { option } from './command-row.ts';
import type { Done } from './command-row.ts';
import type { Context } from './context.ts';
import { collected, refused } from './option.ts';

/** Which models an account or a key may use. */
export interface AllowOptions {
  readonly model?: readonly string[];
  readonly all?: boolean;
}

export const allowOptions = [
  option('--model <model>', 'an allowed model; repeatable', collected),
  option('--all', 'allow all models'),
] as const;

/** Returns their ids in the configuration; `undefined`: all models. */
export async function wantedModels(
  context: Pick<Context, 'config'>,
  { model, all }: AllowOptions,
): Promise<readonly string[] | undefined> {
  if ((model === undefined) === (all !== true)) throw await refused('Give --model for each allowed model, or --all.');
  if (model === undefined) return undefined;
  const { configuredModels } = await import('./configured-model.ts');
  return configuredModels(context, model);
}

export const allowed = ({ id, models }: OperationAnswer<'allow_key' | 'allow_account'>): Done => ({
  json: { id, models },
  lines: [
    `${id} may use ${models === null ? 'all models' : models.join(', ')} from now on; running requests continue.`,
  ],
});
