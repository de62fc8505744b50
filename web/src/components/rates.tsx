/** What a key or an account may use in a time: the fields that set it, and the facts of what is set. */
import type { AppTexts } from '../app/messages/en.ts';
import type { Got } from '../api/use-api.ts';
import { centsOf, dollarsTyped, formatCents } from '../format/money.ts';
import { useText } from '../i18n/text.ts';
import { FieldRow, TextField } from './form.tsx';

type Shown = Pick<Got<'/v1/keys/{id}'>, Name | 'limits_by_model'>;

/** The text of each, and whether it is money. */
const names = {
  requests_per_minute: ['requestsPerMinute', false],
  tokens_per_minute: ['tokensPerMinute', false],
  requests_per_day: ['requestsPerDay', false],
  tokens_per_day: ['tokensPerDay', false],
  cents_per_five_minutes: ['spentInFiveMinutes', true],
  cents_per_day: ['spentInADay', true],
} as const satisfies Record<string, readonly [keyof AppTexts, boolean]>;
type Name = keyof typeof names;
const all = Object.keys(names) as Name[];
const rows = [all.slice(0, 2), all.slice(2, 4), all.slice(4)];

/** Those of all models together: those of single models are set by the API and the command line. */
export function RateFields({ of }: { readonly of?: Shown | undefined }) {
  const t = useText<AppTexts>('app');
  return rows.map((row) => (
    <FieldRow key={row.join()}>
      {row.map((name) => {
        const [text, isMoney] = names[name];
        const value = of?.[name] ?? undefined;
        const shared = { name, label: t(text), optional: true } as const;
        return isMoney ? (
          <TextField key={name} {...shared} isMoney defaultValue={value === undefined ? '' : dollarsTyped(value)} />
        ) : (
          <TextField key={name} {...shared} type="number" min={1} step={1} defaultValue={value ?? ''} />
        );
      })}
    </FieldRow>
  ));
}

/** What `RateFields` has, as the API takes it; null where nothing is filled in. */
export function ratesIn(form: FormData): Record<Name, number | null> {
  const read = (name: Name): number | null => {
    const text = String(form.get(name) ?? '').trim();
    return names[name][1] ? (centsOf(text) ?? null) : text === '' ? null : Number(text);
  };
  return Object.fromEntries(all.map((name) => [name, read(name)])) as Record<Name, number | null>;
}

/** One for each limit that is set. */
export function useRateFacts(of: Shown): readonly (readonly [string, string])[] {
  const t = useText<AppTexts>('app');
  const factsOf = (rates: Pick<Shown, Name>, model: string | undefined) =>
    all.flatMap((name) => {
      const [text, isMoney] = names[name];
      const value = rates[name];
      if (value === null) return [];
      const label = model === undefined ? t(text) : t('onModel', { what: t(text), model });
      return [[label, isMoney ? formatCents(value) : String(value)] as const];
    });
  return [...factsOf(of, undefined), ...of.limits_by_model.flatMap(({ model, ...rates }) => factsOf(rates, model))];
}
