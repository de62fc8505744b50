import { useGet } from '../../api/use-api.ts';
import type { SendInput } from '../../api/use-api.ts';
import { Checkbox, Field, FieldRow, MoreFields, Select, TextArea, TextField } from '../../components/form.tsx';
import { LimitFields, limitIn } from '../../components/limit.tsx';
import { ModelBudgetFields, modelBudgetsIn } from '../../components/model-budgets.tsx';
import { RateFields, ratesIn } from '../../components/rates.tsx';
import { centsOf, dollarsTyped } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { Key } from './key.ts';
import type { KeyTexts } from './messages/en.ts';
import styles from './keys.module.css';

type Settings = Omit<NonNullable<SendInput<'patch', '/v1/keys/{id}'>['body']>, 'type' | 'disabled' | 'name'>;

const daySeconds = 86_400;
const tiers = ['priority', 'default', 'flex'] as const;
const lifetimes = ['never', '1', '7', '30', '90', '365', 'date'] as const;

/** The settings of a key, new or changed: those that most need, and the others behind a word. */
export function KeyFields({ of: key }: { readonly of?: Key }) {
  const t = useText<KeyTexts>('keys');
  const isNew = key === undefined;
  return (
    <>
      <TextField
        name="name"
        label={t('name')}
        defaultValue={key?.name ?? ''}
        maxLength={100}
        autoComplete="off"
        autoFocus={isNew}
      />
      <LimitFields of={key} hint={t('budgetHint')} />
      <Expiry {...(key === undefined ? {} : { of: key })} />
      <Models chosen={key?.allowed_models ?? null} />
      <MoreFields
        summary={t('moreSettings')}
        open={
          key !== undefined &&
          (key.ip_ranges !== null ||
            key.zdr_only ||
            key.max_concurrency !== null ||
            key.tags.length > 0 ||
            key.budgets_by_model.length > 0 ||
            key.session_budget_cents !== null ||
            key.service_tier !== null)
        }
      >
        <TextArea
          name="ip_ranges"
          label={t('addresses')}
          hint={t('addressesHint')}
          optional
          rows={2}
          spellCheck={false}
          defaultValue={(key?.ip_ranges ?? []).join('\n')}
        />
        <RateFields of={key} />
        <ModelBudgets of={key?.budgets_by_model ?? []} />
        <TextField
          name="session_budget_cents"
          label={t('sessionBudget')}
          hint={t('sessionBudgetHint')}
          optional
          isMoney
          defaultValue={typeof key?.session_budget_cents === 'number' ? dollarsTyped(key.session_budget_cents) : ''}
        />
        <Select
          name="service_tier"
          label={t('serviceTier')}
          hint={t('serviceTierHint')}
          defaultValue={key?.service_tier ?? ''}
          options={['', ...tiers].map((value) => ({
            value,
            text: value === '' ? t('asAccount') : value,
          }))}
        />
        <TextField
          name="max_concurrency"
          label={t('concurrency')}
          type="number"
          min={1}
          step={1}
          optional
          defaultValue={key?.max_concurrency ?? ''}
        />
        <TextField
          name="tags"
          label={t('tags')}
          hint={t('tagsHint')}
          optional
          spellCheck={false}
          defaultValue={(key?.tags ?? []).join(', ')}
        />
        <Checkbox name="zdr_only" label={t('zdr')} hint={t('zdrHint')} defaultChecked={key?.zdr_only ?? false} />
      </MoreFields>
    </>
  );
}

function Expiry({ of: key }: { readonly of?: Key }) {
  const t = useText<KeyTexts>('keys');
  const current = key?.expires_at ?? null;
  return (
    <FieldRow>
      <Select
        name="expires_at"
        label={t('expires')}
        defaultValue={current === null ? 'never' : 'date'}
        options={lifetimes
          .filter((value) => value !== 'date' || current !== null)
          .map((value) => ({
            value,
            text:
              value === 'never'
                ? t('never')
                : value === 'date'
                  ? new Date(current! * 1000).toISOString().slice(0, 10)
                  : t('inDays', { n: Number(value) }),
          }))}
      />
    </FieldRow>
  );
}

function ModelBudgets({ of }: { readonly of: Key['budgets_by_model'] }) {
  const { data } = useGet('/v1/models/prices');
  return <ModelBudgetFields of={of} models={(data?.data ?? []).map(({ model }) => model)} />;
}

function Models({ chosen }: { readonly chosen: readonly string[] | null }) {
  const t = useText<KeyTexts>('keys');
  const { data } = useGet('/v1/models/prices');
  const models = [...new Set([...(data?.data ?? []).map(({ model }) => model), ...(chosen ?? [])])];
  return (
    <Field label={t('models')} hint={t('modelsHint')} name="allowed_models">
      {({ id }) => (
        <div id={id} className={styles['models']} role="group" aria-label={t('models')}>
          {models.map((model) => (
            <Checkbox
              key={model}
              name="model"
              value={model}
              label={<code>{model}</code>}
              defaultChecked={chosen?.includes(model) === true}
            />
          ))}
        </div>
      )}
    </Field>
  );
}

/** What `KeyFields` has, as the API takes it; null where nothing is filled in. Throws nothing: the API says what is wrong. */
export function settingsIn(form: FormData, now: number, key?: Key): Settings & { readonly name: string } {
  const current = key?.expires_at ?? null;
  const text = (name: string): string => String(form.get(name) ?? '').trim();
  const whole = (name: string): number | null => (text(name) === '' ? null : Number(text(name)));
  const list = (name: string): string[] =>
    text(name)
      .split(/[\s,]+/)
      .filter((one) => one !== '');
  const expiry = text('expires_at');
  const models = form.getAll('model').map(String);
  const ranges = list('ip_ranges');
  return {
    name: text('name'),
    ...limitIn(form),
    expires_at:
      expiry === 'never' ? null : expiry === 'date' ? current : Math.floor(now / 1000) + Number(expiry) * daySeconds,
    allowed_models: models.length === 0 ? null : models,
    ip_ranges: ranges.length === 0 ? null : ranges,
    ...ratesIn(form),
    ...modelBudgetsIn(form, key?.budgets_by_model ?? []),
    session_budget_cents: centsOf(text('session_budget_cents')) ?? null,
    service_tier: tiers.find((tier) => tier === text('service_tier')) ?? null,
    max_concurrency: whole('max_concurrency'),
    tags: list('tags'),
    zdr_only: form.get('zdr_only') !== null,
  };
}
