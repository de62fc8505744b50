import { useState } from 'react';

import { useGet, useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { FormDialog } from '../../components/dialog.tsx';
import { Checkbox, FieldRow, Select, TextField } from '../../components/form.tsx';
import { RemovableRow } from '../../components/removable-row.tsx';
import { Loaded } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { refreshes } from './account.ts';
import type { Account } from './account.ts';
import type { OperatorAccountTexts } from './messages/en.ts';
import styles from './operator-accounts.module.css';

type Alias = Account['aliases'][number];

/** The names that only this account has for models. */
export function AliasesDialog({ of: account, onClose }: { readonly of: Account; readonly onClose: () => void }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const change = useSend('patch', '/v1/admin/accounts/{id}', { refreshes });
  const catalogue = useGet('/v1/admin/models');
  const [rows, setRows] = useState(account.aliases.map((alias, id) => ({ ...alias, id })));
  const set = (id: number, to: Partial<Alias>): void =>
    setRows(rows.map((row) => (row.id === id ? { ...row, ...to } : row)));
  const submit = (): void =>
    change.mutate(
      { params: { path: { id: account.id } }, body: { aliases: rows.map(({ id: _, ...alias }) => alias) } },
      {
        onSuccess: () => {
          toast(t('saved'));
          onClose();
        },
      },
    );
  return (
    <FormDialog
      title={t('aliases')}
      action={t('save')}
      busy={change.isPending}
      error={change.error}
      onSubmit={submit}
      onClose={onClose}
    >
      <p>{t('aliasesText')}</p>
      <Loaded of={catalogue}>
        {({ data: models }) => (
          <>
            {rows.map((row) => (
              <RemovableRow
                key={row.id}
                label={t('removeAlias', { name: row.name })}
                onRemove={() => setRows(rows.filter(({ id }) => id !== row.id))}
              >
                <FieldRow>
                  <TextField
                    name="aliases"
                    label={t('name')}
                    value={row.name}
                    maxLength={128}
                    autoComplete="off"
                    spellCheck={false}
                    onChange={({ target }) => set(row.id, { name: target.value })}
                  />
                  <Select
                    name="alias_model"
                    label={t('model')}
                    value={row.model}
                    onChange={({ target }) => set(row.id, { model: target.value })}
                    options={[...new Set([...models.map(({ id }) => id), row.model])].map((id) => ({
                      value: id,
                      text: id,
                    }))}
                  />
                </FieldRow>
                <div className={styles['alias']}>
                  <Checkbox
                    name="alias_listed"
                    label={t('aliasListed')}
                    checked={row.listed}
                    onChange={({ target }) => set(row.id, { listed: target.checked })}
                  />
                  <Checkbox
                    name="alias_answers"
                    label={t('aliasAnswers')}
                    checked={row.answers === 'alias'}
                    onChange={({ target }) => set(row.id, { answers: target.checked ? 'alias' : 'model' })}
                  />
                </div>
              </RemovableRow>
            ))}
            <div>
              <Button
                small
                onClick={() =>
                  setRows([
                    ...rows,
                    {
                      id: Math.max(-1, ...rows.map(({ id }) => id)) + 1,
                      name: '',
                      model: models[0]?.id ?? '',
                      listed: true,
                      answers: 'model',
                    },
                  ])
                }
              >
                {t('addAlias')}
              </Button>
            </div>
          </>
        )}
      </Loaded>
    </FormDialog>
  );
}
