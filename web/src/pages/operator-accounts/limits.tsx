import { useGet, useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { changesOf } from '../../components/changes.ts';
import { Dialog } from '../../components/dialog.tsx';
import { Checkbox, Field, FieldRow, Form, FormButtons, Select, TextField } from '../../components/form.tsx';
import { ModelBudgetFields, modelBudgetsIn } from '../../components/model-budgets.tsx';
import { RateFields, ratesIn } from '../../components/rates.tsx';
import { Loaded } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { centsOf, dollarsTyped } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { refreshes } from './account.ts';
import type { Account } from './account.ts';
import type { OperatorAccountTexts } from './messages/en.ts';
import styles from './operator-accounts.module.css';

interface LimitsProps {
  readonly of: Account;
  readonly onClose: () => void;
}

/** What an account may do: only what was changed is sent, since each field is a change in the audit log. */
export function LimitsDialog({ of: account, onClose }: LimitsProps) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const change = useSend('patch', '/v1/admin/accounts/{id}', { refreshes });
  const system = useGet('/v1/admin/system');
  const catalogue = useGet('/v1/admin/models');
  const submit = (form: FormData): void => {
    const body = changesIn(form, account);
    if (Object.keys(body).length === 0) return onClose();
    change.mutate(
      { params: { path: { id: account.id } }, body },
      {
        onSuccess: () => {
          toast(t('saved'));
          onClose();
        },
      },
    );
  };
  const { plan_tier: plan, allowed_models: allowed } = account;
  return (
    <Dialog title={t('limits')} onClose={onClose}>
      <Loaded of={system}>
        {({ plans }) => (
          <Loaded of={catalogue}>
            {({ data: models }) => (
              <Form error={change.error} onSubmit={submit}>
                <TextField
                  name="name"
                  label={t('name')}
                  defaultValue={account.name}
                  maxLength={100}
                  autoComplete="off"
                />
                <FieldRow>
                  <Select
                    name="plan_tier"
                    label={t('plan')}
                    defaultValue={plan ?? ''}
                    options={[
                      { value: '', text: t('none') },
                      ...union(plans, plan === null ? [] : [plan]).map((one) => ({ value: one, text: one })),
                    ]}
                  />
                  <TextField
                    name="max_concurrency"
                    label={t('concurrency')}
                    hint={t('concurrencyHint')}
                    type="number"
                    min={1}
                    max={1_000_000}
                    optional
                    defaultValue={account.max_concurrency ?? ''}
                  />
                </FieldRow>
                <RateFields of={account} />
                <ModelBudgetFields of={account.budgets_by_model} models={models.map(({ id }) => id)} />
                <TextField
                  name="credit_limit_cents"
                  label={t('creditLimit')}
                  hint={t('creditLimitHint')}
                  isMoney
                  defaultValue={dollarsTyped(account.credit_limit_cents)}
                />
                <Field name="allowed_models" label={t('models')} hint={t('modelsHint')}>
                  {({ id }) => (
                    <div id={id} className={styles['models']} role="group" aria-label={t('models')}>
                      {union(
                        models.map(({ id: model }) => model.toLowerCase()),
                        allowed ?? [],
                      ).map((model) => (
                        <Checkbox
                          key={model}
                          name="model"
                          value={model}
                          label={<code>{model}</code>}
                          defaultChecked={allowed?.includes(model) === true}
                        />
                      ))}
                    </div>
                  )}
                </Field>
                <FormButtons>
                  <Button onClick={onClose}>{t('cancel')}</Button>
                  <Button type="submit" look="primary" busy={change.isPending}>
                    {t('save')}
                  </Button>
                </FormButtons>
              </Form>
            )}
          </Loaded>
        )}
      </Loaded>
    </Dialog>
  );
}

/** Names that are there, and those that the account has although they are gone. */
const union = (known: readonly string[], own: readonly string[]): readonly string[] => [...new Set([...known, ...own])];

function changesIn(form: FormData, account: Account) {
  const chosen = form.getAll('model').map(String);
  const now = {
    name: String(form.get('name')),
    plan_tier: String(form.get('plan_tier')) || null,
    max_concurrency: Number(form.get('max_concurrency')) || null,
    ...ratesIn(form),
    credit_limit_cents: centsOf(String(form.get('credit_limit_cents'))) ?? 0,
    allowed_models: chosen.length === 0 ? null : chosen,
  };
  return { ...changesOf(now, account), ...modelBudgetsIn(form, account.budgets_by_model) };
}
