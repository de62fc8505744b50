import { useId, useState } from 'react';
import type { KeyboardEvent, ReactNode } from 'react';

import { useKeys, useMembers } from '../../api/known.ts';
import { mayPay, useSession } from '../../api/session.ts';
import { useGet } from '../../api/use-api.ts';
import { useEndingName } from '../../components/ending.tsx';
import { controlClass, Field, MoreFields, Select } from '../../components/form.tsx';
import { wallSeconds, wallText } from '../../format/date.ts';
import { useText } from '../../i18n/text.ts';
import { isNarrow, periods, states, tiers, usualPeriod } from './filter.ts';
import type { Period, RequestFilter, Span } from './filter.ts';
import type { UsageTexts } from './messages/en.ts';
import styles from './usage.module.css';

interface FiltersProps {
  readonly filter: RequestFilter;
  readonly span: Span;
  readonly zone: string;
  readonly onChange: (filter: RequestFilter) => void;
  /** Whether refused requests, and errors, can be chosen. */
  readonly withEndings?: boolean;
  /** Fields of the page, before all others. */
  readonly children?: ReactNode;
}

const periodTexts: Readonly<Record<Period, keyof UsageTexts>> = {
  today: 'today',
  '7d': 'days7',
  '30d': 'days30',
  '90d': 'days90',
  month: 'month',
};

/** The fields above a list or a report; what they say is in the URL. */
export function Filters({ filter, span, zone, onChange, withEndings, children }: FiltersProps) {
  const t = useText<UsageTexts>('usage');
  const { may } = useSession();
  const nameOf = useEndingName();
  const [isMore, setMore] = useState(false);
  const isOwn = filter.from !== undefined || filter.to !== undefined;
  const set = (changes: RequestFilter): void => onChange({ ...filter, ...changes });
  const setPeriod = (chosen: string): void => {
    const since = periods.find((one) => one === chosen);
    if (since === undefined) set({ since: undefined, from: span.start });
    else set({ since: since === usualPeriod ? undefined : since, from: undefined, to: undefined });
  };
  const sees = may(mayPay);
  return (
    <div className={styles['filters']} data-filter="">
      <div className={styles['fields']}>
        {children}
        <Select
          label={t('period')}
          value={isOwn ? 'own' : (filter.since ?? usualPeriod)}
          options={[
            ...periods.map((one) => ({ value: one, text: t(periodTexts[one]) })),
            { value: 'own', text: t('ownPeriod') },
          ]}
          onChange={(event) => setPeriod(event.target.value)}
        />
        {isOwn && <Moment label={t('from')} at={filter.from} zone={zone} onChange={(from) => set({ from })} />}
        {isOwn && <Moment label={t('to')} at={filter.to} zone={zone} onChange={(to) => set({ to })} />}
        <ModelField value={filter.model} onChange={(model) => set({ model })} />
        <KeyField value={filter.key} onChange={(key) => set({ key })} />
        <Select
          label={t('state')}
          value={filter.ending ?? ''}
          options={[
            { value: '', text: t('all') },
            ...states
              .filter((one) => withEndings === true || one !== 'refused')
              .map((one) => ({ value: one, text: one === 'refused' ? t('refused') : nameOf(one) })),
          ]}
          onChange={(event) => set({ ending: states.find((one) => one === event.target.value) })}
        />
        <Select
          label={t('tier')}
          value={filter.tier ?? ''}
          options={[{ value: '', text: t('all') }, ...tiers.map((one) => ({ value: one, text: one }))]}
          onChange={(event) => set({ tier: tiers.find((one) => one === event.target.value) })}
        />
      </div>
      <MoreFields
        summary={t('moreFilters')}
        onOpen={() => setMore(true)}
        open={filter.tag !== undefined || filter.user !== undefined || filter.error !== undefined}
      >
        <div className={styles['fields']}>
          <Typed label={t('tag')} value={filter.tag} onChange={(tag) => set({ tag })} />
          {sees && <PersonField wanted={isMore} value={filter.user} onChange={(user) => set({ user })} />}
          {withEndings === true && (
            <Typed label={t('errorCode')} value={filter.error} onChange={(error) => set({ error })} />
          )}
        </div>
      </MoreFields>
      {isNarrow(filter) && (
        <button
          type="button"
          className={styles['clear']}
          onClick={() => onChange({ since: filter.since, from: filter.from, to: filter.to })}
        >
          {t('clear')}
        </button>
      )}
    </div>
  );
}

interface FieldProps<Value> {
  readonly value: Value | undefined;
  readonly onChange: (value: Value | undefined) => void;
}

/** A text that counts once it is whole: with Enter, or when one leaves the field. */
function Typed({
  label,
  value,
  onChange,
  onFocus,
  suggestions,
}: FieldProps<string> & {
  readonly label: string;
  readonly onFocus?: () => void;
  readonly suggestions?: readonly string[];
}) {
  const id = useId();
  const commit = (typed: string): void => {
    const wanted = typed.trim() === '' ? undefined : typed.trim();
    if (wanted !== value) onChange(wanted);
  };
  return (
    <Field label={label}>
      {(control) => (
        <>
          <input
            className={controlClass}
            key={value}
            defaultValue={value ?? ''}
            maxLength={128}
            autoComplete="off"
            list={suggestions === undefined ? undefined : id}
            onFocus={onFocus}
            onBlur={(event) => commit(event.target.value)}
            onKeyDown={(event: KeyboardEvent<HTMLInputElement>) => {
              if (event.key === 'Enter') commit(event.currentTarget.value);
            }}
            {...control}
          />
          {suggestions !== undefined && (
            <datalist id={id}>
              {suggestions.map((one) => (
                <option key={one} value={one} />
              ))}
            </datalist>
          )}
        </>
      )}
    </Field>
  );
}

/** Models that are gone have requests too, so any name may be typed. */
function ModelField(props: FieldProps<string>) {
  const t = useText<UsageTexts>('usage');
  const [isWanted, setWanted] = useState(false);
  const { data } = useGet('/v1/models/prices', undefined, { enabled: isWanted });
  return (
    <Typed
      label={t('model')}
      onFocus={() => setWanted(true)}
      suggestions={data?.data.map(({ model }) => model) ?? []}
      {...props}
    />
  );
}

function KeyField({ value, onChange }: FieldProps<string>) {
  const t = useText<UsageTexts>('usage');
  return <Chosen label={t('key')} of={useKeys()} value={value} onChange={onChange} />;
}

/** `wanted`: it can be seen. */
function PersonField({ wanted, value, onChange }: FieldProps<string> & { readonly wanted: boolean }) {
  const t = useText<UsageTexts>('usage');
  const people = useMembers(wanted || value !== undefined);
  return <Chosen label={t('person')} of={people} value={value} onChange={onChange} />;
}

interface ChosenProps extends FieldProps<string> {
  readonly label: string;
  readonly of: readonly { readonly id: string; readonly name: string }[];
}

function Chosen({ label, of, value, onChange }: ChosenProps) {
  const t = useText<UsageTexts>('usage');
  // A link may name what the list does not have.
  const isListed = value === undefined || of.some(({ id }) => id === value);
  return (
    <Select
      label={label}
      value={value ?? ''}
      options={[
        { value: '', text: t('all') },
        ...of.map(({ id, name }) => ({ value: id, text: name })),
        ...(isListed ? [] : [{ value, text: value }]),
      ]}
      onChange={(event) => onChange(event.target.value === '' ? undefined : event.target.value)}
    />
  );
}

interface MomentProps {
  readonly label: string;
  readonly at: number | undefined;
  readonly zone: string;
  readonly onChange: (at: number | undefined) => void;
}

/** A time of the account's zone, to the minute. */
function Moment({ label, at, zone, onChange }: MomentProps) {
  const shown = at === undefined ? '' : wallText(at, zone);
  return (
    <div className={styles['moment']}>
      <Field label={label}>
        {(control) => (
          <input
            className={controlClass}
            type="datetime-local"
            key={shown}
            defaultValue={shown}
            onBlur={({ target: { value } }) => {
              const seconds = wallSeconds(value, zone);
              if (value !== shown) onChange(Number.isNaN(seconds) ? undefined : seconds);
            }}
            {...control}
          />
        )}
      </Field>
    </div>
  );
}
