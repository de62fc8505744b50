import { useState } from 'react';
import type { ReactNode } from 'react';

import { useKeyNames, useKeys, useMembers } from '../../api/known.ts';
import { mayPay, useSession } from '../../api/session.ts';
import { useGet } from '../../api/use-api.ts';
import { useEndingName } from '../../components/ending.tsx';
import { controlClass, Field, MoreFields, Select } from '../../components/form.tsx';
import { Picker } from './picker.tsx';
import type { PickerOption } from './picker.tsx';
import { wallSeconds, wallText } from '../../format/date.ts';
import { useText } from '../../i18n/text.ts';
import { isNarrow, periods, states, tiers, usualPeriod } from './filter.ts';
import type { Period, RequestFilter, Span, State, Tier } from './filter.ts';
import { useCounts } from './use-counts.ts';
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
  const isOwn = filter.from !== undefined || filter.to !== undefined;
  const set = (changes: RequestFilter): void => onChange({ ...filter, ...changes });
  const setPeriod = (chosen: string): void => {
    const since = periods.find((one) => one === chosen);
    if (since === undefined) set({ since: undefined, from: span.start });
    else set({ since: since === usualPeriod ? undefined : since, from: undefined, to: undefined });
  };
  const sees = may(mayPay);
  const shown = { filter, span };
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
        <ModelField of={shown} onChange={(model) => set({ model })} />
        <KeyField of={shown} onChange={(key) => set({ key })} />
        <StateField of={shown} withRefused={withEndings === true} onChange={(ending) => set({ ending })} />
        <TierField of={shown} onChange={(tier) => set({ tier })} />
      </div>
      <MoreFields
        summary={t('moreFilters')}
        open={filter.tag !== undefined || filter.user !== undefined || filter.error !== undefined}
      >
        <div className={styles['fields']}>
          <TagField of={shown} onChange={(tag) => set({ tag })} />
          {sees && <PersonField of={shown} onChange={(user) => set({ user })} />}
          {withEndings === true && <ErrorField of={shown} onChange={(error) => set({ error })} />}
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

interface FieldProps<Value extends string = string> {
  readonly of: { readonly filter: RequestFilter; readonly span: Span };
  readonly onChange: (value: Value | undefined) => void;
}

/** Whether a list was opened, and the counts of what is in it: asked for from then on. */
function useOpened(of: FieldProps['of'], by: Parameters<typeof useCounts>[1]) {
  const [isOpened, setOpened] = useState(false);
  const counts = useCounts(of, by, isOpened);
  return { isOpened, counts, onOpen: () => setOpened(true) };
}

/** Those that occur, the most frequent first, and then the others that are known, and the one that is chosen. */
function optionsOf(
  counts: ReadonlyMap<string, number> | undefined,
  known: readonly string[],
  value: string | undefined,
  nameOf: (id: string) => string | undefined = () => undefined,
): readonly PickerOption[] {
  const ids = new Set([...(counts?.keys() ?? []), ...known, ...(value === undefined ? [] : [value])]);
  return [...ids].map((id) => ({
    value: id,
    text: nameOf(id) ?? id,
    count: counts === undefined ? undefined : (counts.get(id) ?? 0),
  }));
}

/** All that there can be, in their own order. */
const fixedOptions = (
  counts: ReadonlyMap<string, number> | undefined,
  values: readonly string[],
  textOf: (value: string) => string,
): readonly PickerOption[] =>
  values.map((value) => ({
    value,
    text: textOf(value),
    count: counts === undefined ? undefined : (counts.get(value) ?? 0),
  }));

/** Models that are gone have requests too, so any name may be typed. */
function ModelField({ of, onChange }: FieldProps) {
  const t = useText<UsageTexts>('usage');
  const { isOpened, counts, onOpen } = useOpened(of, 'model');
  const { data } = useGet('/v1/models/prices', undefined, { enabled: isOpened });
  const { model } = of.filter;
  const options = optionsOf(counts, data?.data.map((one) => one.model) ?? [], model);
  return (
    <Picker
      label={t('model')}
      all={t('all')}
      kind="free"
      value={model}
      options={options}
      onOpen={onOpen}
      onChange={onChange}
    />
  );
}

function KeyField({ of, onChange }: FieldProps) {
  const t = useText<UsageTexts>('usage');
  const { counts, onOpen } = useOpened(of, 'key');
  const known = useKeys();
  const { key } = of.filter;
  const nameOf = useKeyNames([...(counts?.keys() ?? []), ...(key === undefined ? [] : [key])]);
  const ids = known.map(({ id }) => id);
  const options = optionsOf(counts, ids, key, nameOf);
  return <Picker label={t('key')} all={t('all')} value={key} options={options} onOpen={onOpen} onChange={onChange} />;
}

function StateField({ of, withRefused, onChange }: FieldProps<State> & { readonly withRefused: boolean }) {
  const t = useText<UsageTexts>('usage');
  const endingName = useEndingName();
  const { counts, onOpen } = useOpened(of, 'ending');
  const known = states.filter((one) => withRefused || one !== 'refused');
  return (
    <Picker
      label={t('state')}
      all={t('all')}
      kind="fixed"
      value={of.filter.ending}
      options={fixedOptions(counts, known, (one) => (one === 'refused' ? t('refused') : endingName(one)))}
      onOpen={onOpen}
      onChange={(chosen) => onChange(states.find((one) => one === chosen))}
    />
  );
}

function TierField({ of, onChange }: FieldProps<Tier>) {
  const t = useText<UsageTexts>('usage');
  const { counts, onOpen } = useOpened(of, 'tier');
  return (
    <Picker
      label={t('tier')}
      all={t('all')}
      kind="fixed"
      value={of.filter.tier}
      options={fixedOptions(counts, tiers, (one) => one)}
      onOpen={onOpen}
      onChange={(chosen) => onChange(tiers.find((one) => one === chosen))}
    />
  );
}

function TagField({ of, onChange }: FieldProps) {
  const t = useText<UsageTexts>('usage');
  const { counts, onOpen } = useOpened(of, 'tag');
  const { tag } = of.filter;
  const options = optionsOf(counts, [], tag);
  return (
    <Picker
      label={t('tag')}
      all={t('all')}
      kind="free"
      value={tag}
      options={options}
      onOpen={onOpen}
      onChange={onChange}
    />
  );
}

function PersonField({ of, onChange }: FieldProps) {
  const t = useText<UsageTexts>('usage');
  const { isOpened, counts, onOpen } = useOpened(of, 'person');
  const { user } = of.filter;
  const people = useMembers(isOpened || user !== undefined);
  const ids = people.map(({ id }) => id);
  const options = optionsOf(counts, ids, user, (id) => people.find((one) => one.id === id)?.name);
  return (
    <Picker label={t('person')} all={t('all')} value={user} options={options} onOpen={onOpen} onChange={onChange} />
  );
}

function ErrorField({ of, onChange }: FieldProps) {
  const t = useText<UsageTexts>('usage');
  const { counts, onOpen } = useOpened(of, 'error');
  const { error } = of.filter;
  const options = optionsOf(counts, [], error);
  return (
    <Picker
      label={t('errorCode')}
      all={t('all')}
      kind="free"
      value={error}
      options={options}
      onOpen={onOpen}
      onChange={onChange}
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
