import type { Translated } from '../../../i18n/text.ts';
import type { OperatorRevenueTexts } from './en.ts';

const de: Translated<OperatorRevenueTexts> = {
  account: 'Konto',
  by: 'Gruppieren nach',
  cached: 'Aus dem Cache',
  cost: 'Kosten',
  cut: 'Die ersten {n} von {all} werden gezeigt; der Export hat alle.',
  empty: 'Keine Nutzung',
  emptyText: 'In diesem Monat wurde nichts genutzt.',
  export: 'CSV exportieren',
  input: 'Eingabe',
  lead: 'Was über alle Konten berechnet wurde, was es gekostet hat, und was bleibt. Monate sind die von UTC.',
  margin: 'Marge',
  marginNote: 'von {n} der {all} Zeilen sind die Kosten bekannt',
  model: 'Modell',
  month: 'Monat',
  noCosts: 'Was Tokens kosten, steht in der Konfiguration: models[].costs.',
  output: 'Ausgabe',
  requests: 'Anfragen',
  revenue: 'Umsatz',
  revenueNote: 'Erstattungen sind nicht abgezogen.',
  tier: 'Dienststufe',
  title: 'Umsatz',
  uncharged: 'Nicht berechnet',
};

export default de;
