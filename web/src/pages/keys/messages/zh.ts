import type { Translated } from '../../../i18n/text.ts';
import type { KeyTexts } from './en.ts';

const zh: Translated<KeyTexts> = {
  budget: '预算',
  create: '创建密钥',
  empty: '还没有密钥',
  emptyText: '程序使用密钥来调用模型。每个密钥都可以有自己的预算、模型和有效期。',
  expires: '到期时间',
  lastUsed: '上次使用',
  lead: '程序用来调用模型的凭据。密钥一旦达到预算就会立即停止，绝不会超支。',
  models: '模型',
  name: '名称',
  never: '从未',
  paused: '已暂停',
  management: '管理',
  showPaused: '显示已暂停的密钥',
  spent: '已花费',
  spentOf: '{spent} / {limit}',
  allModels: '全部',
  title: '密钥',
};

export default zh;
