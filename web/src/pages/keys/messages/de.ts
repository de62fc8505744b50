import type { Translated } from '../../../i18n/text.ts';
import type { KeyTexts } from './en.ts';

const de: Translated<KeyTexts> = {
  budget: 'Budget',
  create: 'Schlüssel anlegen',
  empty: 'Noch keine Schlüssel',
  emptyText: 'Mit einem Schlüssel ruft ein Programm Modelle auf. Jeder kann Budget, Modelle und Ablauf haben.',
  expires: 'Läuft ab',
  lastUsed: 'Zuletzt benutzt',
  lead: 'Womit Programme Modelle aufrufen. Ein Schlüssel an seinem Budget hört sofort auf, nie darüber hinaus.',
  models: 'Modelle',
  name: 'Name',
  never: 'nie',
  paused: 'Angehalten',
  management: 'Verwaltung',
  showPaused: 'Angehaltene zeigen',
  spent: 'Ausgegeben',
  spentOf: '{spent} von {limit}',
  allModels: 'alle',
  title: 'Schlüssel',
};

export default de;
