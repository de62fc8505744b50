import { useState } from 'react';

import { useSend } from '../../api/use-api.ts';
import type { Got, Sent } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { FieldRow, Form, FormButtons, Select, TextField } from '../../components/form.tsx';
import { Facts } from '../../components/page.tsx';
import { ErrorNote } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { exactPattern, formatMoney, microcentsOf, microcentsTyped } from '../../format/money.ts';
import { formatNumber } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { Difference, useChange, useUnwritable } from './change.tsx';
import type { OperatorCatalogueTexts } from './messages/en.ts';
import styles from './operator-catalogue.module.css';

export type Model = Got<'/v1/admin/models'>['data'][number];

interface PriceProps {
  /** Of whom; null: the list price, which is in the file; left out: an account that is typed. */
  readonly account?: string | null;
  /** One of these is chosen. */
  readonly models: readonly Model[];
  readonly onClose: () => void;
}

const rates = [
  'input_microcents_per_million',
  'cache_read_microcents_per_million',
  'output_microcents_per_million',
] as const;
const labels = { [rates[0]]: 'input', [rates[1]]: 'cached', [rates[2]]: 'output' } as const;
type Rates = Readonly<Partial<Record<(typeof rates)[number], number>>>;

/** Rates for all models have multiples of tiers only. */
export const everyModel = '*';

const tiers = ['priority', 'flex', 'batch'] as const;
type Multiples = Readonly<Partial<Record<(typeof tiers)[number], number>>>;

/** What the fields have, without the empty ones. */
function typed<Name extends string>(
  form: FormData,
  names: readonly Name[],
  read: (text: string) => number | undefined,
) {
  const given = names.flatMap((name) => {
    const text = String(form.get(name) ?? '').trim();
    return text === '' ? [] : [[name, read(text)] as const];
  });
  return Object.fromEntries(given) as Partial<Record<Name, number>>;
}

/** Rates are tried on what was used in the last 30 days before anything changes: only what was tried is saved. */
export function PriceDialog({ account, models, onClose }: PriceProps) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const [model, setModel] = useState(models[0]);
  const preview = useSend('post', '/v1/admin/account_prices/preview');
  const save = useSend('post', '/v1/admin/account_prices', { refreshes: ['/v1/admin/account_prices'] });
  const [tried, setTried] = useState<
    Rates & { readonly account_id?: string; readonly model: string; readonly tier_multiples?: Multiples }
  >();
  const submit = (form: FormData): void => {
    const multiples = typed(form, tiers, (text) => Number(text.replace(',', '.')));
    const prices = typed(form, rates, microcentsOf);
    // Multiples alone do not fix the list price of the day.
    const isList = rates.every((rate) => prices[rate] === model?.[rate]);
    const whom = account ?? (account === null ? undefined : String(form.get('account_id')).trim());
    const body = {
      ...(isList && Object.keys(multiples).length > 0 ? {} : prices),
      ...(Object.keys(multiples).length > 0 && { tier_multiples: multiples }),
      model: model?.id ?? everyModel,
      ...(whom === undefined ? {} : { account_id: whom }),
    };
    preview.mutate({ body }, { onSuccess: () => setTried(body) });
  };
  const change = (): void => {
    setTried(undefined);
    preview.reset();
    save.reset();
  };
  const keep = (): void => {
    if (tried?.account_id === undefined) return;
    save.mutate(
      { body: { ...tried, account_id: tried.account_id } },
      {
        onSuccess: () => {
          toast(t('saved'));
          onClose();
        },
      },
    );
  };
  return (
    <Dialog title={account === null ? t('tryListPrice') : t('setPrice')} onClose={onClose}>
      <Form error={preview.error ?? save.error} onSubmit={submit}>
        {account === undefined && (
          <TextField
            name="account_id"
            label={t('accountId')}
            pattern="acct_\w+"
            maxLength={64}
            autoComplete="off"
            spellCheck={false}
            onChange={change}
          />
        )}
        {(models.length > 1 || account !== null) && (
          <Select
            name="model"
            label={t('model')}
            value={model?.id ?? everyModel}
            options={[
              ...models.map(({ id }) => ({ value: id, text: id })),
              ...(account === null ? [] : [{ value: everyModel, text: t('allModels') }]),
            ]}
            onChange={({ target: { value } }) => {
              change();
              setModel(models.find(({ id }) => id === value));
            }}
          />
        )}
        {model !== undefined && <PriceFields of={model} areOptional={account !== null} onChange={change} />}
        {account !== null && <TierFields onChange={change} />}
        {tried !== undefined && preview.data !== undefined && <Effect of={preview.data} />}
        {tried !== undefined && account === null && <ListPrice of={tried} onClose={onClose} />}
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look={tried === undefined ? 'primary' : 'plain'} busy={preview.isPending}>
            {t('preview')}
          </Button>
          {account !== null && (
            <Button look="primary" disabled={tried === undefined} busy={save.isPending} onClick={keep}>
              {t('save')}
            </Button>
          )}
        </FormButtons>
      </Form>
    </Dialog>
  );
}

function PriceFields({
  of: model,
  areOptional,
  onChange,
}: {
  readonly of: Model;
  readonly areOptional: boolean;
  readonly onChange: () => void;
}) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  return (
    <>
      <p className={styles['hint']}>{areOptional ? t('perMillionOrEmptyHint') : t('perMillionHint')}</p>
      <FieldRow>
        {rates.map((rate) => (
          <TextField
            key={`${model.id} ${rate}`}
            name={rate}
            label={t(labels[rate])}
            isMoney
            optional={areOptional}
            pattern={exactPattern}
            defaultValue={microcentsTyped(model[rate])}
            hint={t('list', { amount: formatMoney(model[rate], { precision: 'exact' }) })}
            onChange={onChange}
          />
        ))}
      </FieldRow>
    </>
  );
}

function TierFields({ onChange }: { readonly onChange: () => void }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  return (
    <>
      <p className={styles['hint']}>{t('tiersHint')}</p>
      <FieldRow>
        {tiers.map((tier) => (
          <TextField
            key={tier}
            name={tier}
            label={tier}
            inputMode="decimal"
            optional
            pattern="\d{1,3}([.,]\d{1,4})?"
            placeholder="×"
            onChange={onChange}
          />
        ))}
      </FieldRow>
    </>
  );
}

type Preview = Sent<'post', '/v1/admin/account_prices/preview'>;

/** What they would have cost. */
function Effect({ of }: { readonly of: Preview }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  return (
    <section className={styles['effect']} aria-label={t('effect')} role="status">
      <h3>{t('effect')}</h3>
      <Facts
        facts={[
          [t('requests'), formatNumber(of.requests)],
          [
            t('tokens'),
            t('tokensOf', { prompt: of.prompt_tokens, cached: of.cached_tokens, completion: of.completion_tokens }),
          ],
          [t('charged'), formatMoney(of.charged_microcents)],
          [t('wouldBe'), formatMoney(of.would_be_microcents)],
          [t('difference'), <strong>{formatMoney(of.difference_microcents, { sign: true })}</strong>],
        ]}
      />
      {of.requests === 0 && <p className={styles['hint']}>{t('noUsage')}</p>}
    </section>
  );
}

/** List prices are in the configuration file, and are shown there before they are written. */
function ListPrice({ of, onClose }: { readonly of: Rates & { readonly model: string }; readonly onClose: () => void }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const change = useChange(onClose);
  const unwritable = useUnwritable();
  const { model, ...prices } = of;
  if (change.shown === undefined)
    return (
      <>
        {change.error !== null && <ErrorNote error={change.error} />}
        <Button
          look="primary"
          busy={change.isAsking}
          onClick={() => change.show({ edit_model: { model, set: { pricing: prices as Required<Rates> } } })}
        >
          {t('makeListPrice')}
        </Button>
      </>
    );
  return (
    <>
      <Difference of={change.shown} />
      {unwritable !== undefined && <p className={styles['unwritable']}>{unwritable}</p>}
      <Button
        look="primary"
        disabled={unwritable !== undefined || change.shown.difference.length === 0}
        busy={change.isSaving}
        onClick={change.keep}
      >
        {t('apply')}
      </Button>
    </>
  );
}
