import { OperationError } from '../accounts/operation.ts';
import type { OperationAnswer } from '../accounts/operations.ts';
import { configuredModels } from './configured-model.ts';
import type { Context } from './context.ts';
import { writing } from './database.ts';

interface AllowOptions {
  readonly model?: readonly string[];
  readonly all?: boolean;
}

/** Sets the models that a key may use, out of those of its account. */
export async function allowKey(context: Context, options: AllowOptions, keyId: string): Promise<number> {
  return reported(context, await writing(context, { kind: 'allow_key', keyId, models: wanted(context, options) }));
}

/** Sets the models that the keys of an account may use. */
export async function allowAccount(
  context: Context,
  options: AllowOptions & { readonly account?: string },
): Promise<number> {
  const models = wanted(context, options);
  return reported(context, await writing(context, { kind: 'allow_account', accountId: options.account, models }));
}

function wanted(context: Context, { model, all }: AllowOptions): readonly string[] | undefined {
  if ((model === undefined) === (all !== true))
    throw new OperationError('Give --model for each allowed model, or --all.');
  return model === undefined ? undefined : configuredModels(context, model);
}

function reported(context: Context, answer: OperationAnswer<'allow_key' | 'allow_account'>): number {
  context.print.result({ id: answer.id, models: answer.models }, [
    `${answer.id} may use ${answer.models === null ? 'all models' : answer.models.join(', ')} from now on; running requests continue.`,
  ]);
  return 0;
}
