import { FieldRow, Select, TextField } from '../../components/form.tsx';
import { exactPattern, microcentsOf } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { OperatorCatalogueTexts } from './messages/en.ts';

export type Terms = 'draft' | 'sold' | 'free';

interface TermsFieldsProps {
  readonly value: Terms;
  readonly onChange: (terms: Terms) => void;
  /** Whether what is in a cache may have a price of its own. */
  readonly withCached?: boolean;
}

/** Who may use a new model, and for how much. */
export function TermsFields({ value, onChange, withCached = false }: TermsFieldsProps) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  return (
    <>
      <Select
        label={t('forAccounts')}
        value={value}
        options={(['draft', 'sold', 'free'] as const).map((each) => ({ value: each, text: t(each) }))}
        onChange={({ target }) => onChange(target.value as Terms)}
      />
      {value === 'sold' && (
        <FieldRow>
          <TextField name="input" label={t('input')} isMoney pattern={exactPattern} hint={t('perMillion')} />
          <TextField name="output" label={t('output')} isMoney pattern={exactPattern} hint={t('perMillion')} />
          {withCached && (
            <TextField name="cached" label={t('cached')} isMoney pattern={exactPattern} hint={t('asInput')} optional />
          )}
        </FieldRow>
      )}
    </>
  );
}

/** The prices in the form of `TermsFields`. */
export function ratesIn(form: FormData) {
  const cached = microcentsOf(String(form.get('cached') ?? ''));
  return {
    input_microcents_per_million: microcentsOf(String(form.get('input'))) ?? 0,
    output_microcents_per_million: microcentsOf(String(form.get('output'))) ?? 0,
    ...(cached === undefined ? {} : { cache_read_microcents_per_million: cached }),
  };
}
