/** What a key or an account may spend on single models: the fields that set it, and the facts of what is set. */
import { useState } from 'react';

import type { AppTexts } from '../app/messages/en.ts';
import type { Got } from '../api/use-api.ts';
import { exactPattern, formatMoney, microcentsOf, microcentsTyped } from '../format/money.ts';
import { useText } from '../i18n/text.ts';
import { Button } from './button.tsx';
import { Field, FieldRow, Select, TextField } from './form.tsx';
import { resets, type Reset } from './limit.tsx';
import { RemovableRow } from './removable-row.tsx';

type Budgets = Got<'/v1/keys/{id}'>['budgets_by_model'];

interface Row {
  readonly id: number;
  readonly model: string;
  readonly amount: string;
  readonly reset: Reset;
}

interface ModelBudgetFieldsProps {
  readonly of: Budgets;
  /** Ids in any case. */
  readonly models: readonly string[];
}

export function ModelBudgetFields({ of, models }: ModelBudgetFieldsProps) {
  const t = useText<AppTexts>('app');
  const [rows, setRows] = useState<readonly Row[]>(
    of.map(({ model, limit_microcents: limit, limit_reset: reset }, id) => ({
      id,
      model,
      amount: microcentsTyped(limit ?? 0),
      reset: reset ?? 'total',
    })),
  );
  const known = [...new Set([...models.map((model) => model.toLowerCase()), ...of.map(({ model }) => model)])];
  const unused = known.find((model) => rows.every((row) => row.model !== model));
  const change = (id: number, to: Partial<Row>): void =>
    setRows(rows.map((row) => (row.id === id ? { ...row, ...to } : row)));
  return (
    <Field label={t('modelBudgets')} optional name="budgets_by_model">
      {({ id }) => (
        <div id={id} role="group" aria-label={t('modelBudgets')}>
          {rows.map((row) => (
            <RemovableRow
              key={row.id}
              label={t('removeModelBudget', { model: row.model })}
              onRemove={() => setRows(rows.filter((other) => other.id !== row.id))}
            >
              <FieldRow>
                <Select
                  name="budget_model"
                  label={t('model')}
                  value={row.model}
                  onChange={({ target }) => change(row.id, { model: target.value })}
                  options={known
                    .filter((model) => model === row.model || !rows.some((other) => other.model === model))
                    .map((model) => ({ value: model, text: model }))}
                />
                <TextField
                  name="budget_amount"
                  label={t('budget')}
                  isMoney
                  pattern={exactPattern}
                  required
                  value={row.amount}
                  onChange={({ target }) => change(row.id, { amount: target.value })}
                />
                <Select
                  name="budget_reset"
                  label={t('renews')}
                  value={row.reset}
                  onChange={({ target }) => change(row.id, { reset: target.value as Reset })}
                  options={(Object.keys(resets) as Reset[]).map((value) => ({ value, text: t(resets[value]) }))}
                />
              </FieldRow>
            </RemovableRow>
          ))}
          {unused !== undefined && (
            <Button
              small
              onClick={() =>
                setRows([
                  ...rows,
                  { id: Math.max(-1, ...rows.map((row) => row.id)) + 1, model: unused, amount: '', reset: 'monthly' },
                ])
              }
            >
              {t('addModelBudget')}
            </Button>
          )}
        </div>
      )}
    </Field>
  );
}

/** What `ModelBudgetFields` has, as the API takes it; nothing where nothing has changed. */
export function modelBudgetsIn(form: FormData, of: Budgets) {
  const all = (name: string): string[] => form.getAll(name).map(String);
  const [amounts, renewals] = [all('budget_amount'), all('budget_reset') as Reset[]];
  const budgets = all('budget_model').map((model, index) => {
    const reset = renewals[index]!;
    return {
      model,
      limit_microcents: microcentsOf(amounts[index]!) ?? 0,
      limit_reset: reset === 'total' ? null : reset,
    };
  });
  const before = of.map(({ model, limit_microcents, limit_reset }) => ({ model, limit_microcents, limit_reset }));
  return JSON.stringify(budgets) === JSON.stringify(before) ? {} : { budgets_by_model: budgets };
}

/** One for each budget. */
export function useModelBudgetFacts(of: Budgets): readonly (readonly [string, string])[] {
  const t = useText<AppTexts>('app');
  return of.map(({ model, limit_microcents: limit, limit_remaining_microcents: left, limit_reset: reset }) => {
    const spent = t('spentOf', {
      spent: formatMoney((limit ?? 0) - (left ?? 0)),
      limit: formatMoney(limit ?? 0, { precision: 'exact' }),
    });
    const renewal = `${t('renews')} ${t(resets[reset ?? 'total'])}`;
    return [t('onModel', { what: t('budget'), model }), `${spent} · ${renewal}`] as const;
  });
}
