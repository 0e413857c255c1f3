"""What waits in a program, from a core file or a stopped process: for gdb, where `scheduler::describe` cannot be called.

    gdb PROGRAM CORE -batch -x tools/gdb/rdmacoro.py -ex rdmacoro-describe

Needs debug information (-g). It reads the lists that hold operations by the names of their members, and calls nothing: schedulers,
waits for objects of the program, sleeps, handshakes and closes, sends that wait or are carried in pieces or by a rendezvous, posted
receives and probes. Not what other engines have under way, nor since when: that only `describe` knows.
"""
import gdb

NAMESPACE = 'rdmacoro::'
DETAIL = NAMESPACE + 'detail::'


def pointer(name):
    return gdb.lookup_type(name).pointer()


def elements(head, tag, element):
    """The elements of an `intrusive_list<element, tag>`."""
    end = head['head_'].address
    at = head['head_']['next']
    node = pointer(DETAIL + 'list_node<' + tag + '>')
    while at and at != end:
        yield at.cast(node).cast(pointer(element)).dereference()
        at = at['next']


def pointers(storage, element):
    """The elements of a `plain_vector<element*>`."""
    data = storage['data_'].cast(pointer(element).pointer())
    return (data[n] for n in range(int(storage['size_'])))


def enumerator(value):
    return str(value).rsplit('::', 1)[-1]


def tags(wanted):
    mask = int(wanted['mask'])
    if mask == 0:
        return 'any tag'
    return f"tag {int(wanted['tag'])}" + ('' if mask == 2**64 - 1 else f' under mask {mask:#x}')


def named(found, name):
    """The base class or member of an engine with that type's name, however deep; None where there is none."""
    kind = found.type.strip_typedefs()
    if kind.name == DETAIL + name:
        return found
    if kind.code != gdb.TYPE_CODE_STRUCT:
        return None
    for field in kind.fields():
        if field.is_base_class or field.name in ('engine', 'fallback_'):
            inner = named(found[field], name)
            if inner is not None:
                return inner
    return None


def timers(heap):
    yield from pointers(heap['heap_'], DETAIL + 'timer_node')
    behind = heap['behind_']
    while behind:
        yield behind.dereference()
        behind = behind['next_behind']


def describe_waits(scheduler):
    for wait in elements(scheduler['parked_waits_'], DETAIL + 'parked_wait', DETAIL + 'parked_wait'):
        operation = wait['operation_']
        if operation and enumerator(operation['state_']) == 'done':
            continue
        facts = wait['facts_']
        yield f"{facts['what'].string()}: {facts['stage'].string()}; {enumerator(facts['next'])}"
    for timer in timers(scheduler['timers_']):
        if timer['of_sleep']:
            yield f"sleep until {int(timer['deadline']['__d']['__r'])} ns of the scheduler's clock; time"


def describe_send(send, stage, actor):
    what = 'ssend' if send['synchronous_'] else 'send'
    return f"{what}, tag {int(send['tag_'])}: {stage}; {actor}"


def describe_engines(connection):
    try:
        everything = connection['engines_']['all_']
    except gdb.error:
        return  # its type has no debug information
    for field in everything.type.fields():
        engine = everything[field]
        pieces = named(engine, 'segmented_engine')
        if pieces is not None:
            for n in range(int(pieces['out_']['size_'])):
                request = pieces['out_']['all_'][n]['request']
                if request:
                    yield describe_send(request.dereference(),
                                        f"announced, {int(request['sent_'])} bytes have gone, "
                                        + ('met' if request['answered_'] else 'no receive has met it'),
                                        'peer_poll' if request['answered_'] else 'peer_receive')
        halves = named(engine, 'rendezvous_halves')
        if halves is not None:
            slots = halves['out_']['slots_']
            for n in range(int(slots['size_'])):
                base = slots['all_'][n]['slot'].cast(pointer(DETAIL + 'owing_slot'))
                slot = base.cast(pointer(DETAIL + 'rendezvous_sender::slot'))
                if slot['request']:
                    state = enumerator(slot['now'])
                    yield describe_send(slot['request'].dereference(), state,
                                        'peer_receive' if state == 'requested' else 'peer_poll')


def receives_of(matcher):
    every = [matcher['receives_']]
    for n in range(int(matcher['records_']['size_'])):
        record = matcher['records_']['all_'][n]
        if record:
            every.append(record['receives'])
    return every


def posted(matcher):
    if matcher['sole_']:
        yield matcher['sole_'].dereference()
    every = receives_of(matcher)
    request = DETAIL + 'receive_request'
    for some in every:
        for n in range(int(some['exact_']['size_'])):
            yield from elements(some['exact_']['lists_'][n], request, request)
        for masked in (some['masked_'], some['high_']):
            yield from elements(masked['list_'], request, request)
            if not masked['tables_']:
                continue
            for table in range(int(masked['most_masks'])):
                by_tag = masked['tables_']['of'][table]['by_tag']
                for n in range(int(by_tag['size_'])):
                    yield from elements(by_tag['lists_'][n], request, request)


def covers(credits, size):
    """As `credit_account::covers`."""
    size = min(size, int(credits['peer_budget_']) * 64 // 4)
    wanted = size + 192
    storage = 256
    if wanted > storage:
        step = (1 << (wanted - 1).bit_length() - 1) // 4
        storage = (wanted + step - 1) // step * step
    return (storage + 63) // 64 <= int(credits['available_'])


def describe_queue(connection):
    """The sends that wait, the handshake and the close, as `connection_base::describe_own`."""
    sends = list(elements(connection['queue_'], DETAIL + 'send_request', DETAIL + 'send_request'))
    if enumerator(connection['phase_']) == 'opening':
        greets = 'room in the link' if connection['owes_hello_'] else 'peer_poll'
        stage, actor = 'waits for the handshake', greets
        if connection['opener_']:
            yield f"handshake: {'no room for this side' if connection['owes_hello_'] else 'the peer has not answered'}; {greets}"
    elif not connection['starved_']:
        stage, actor = 'waits for room in the link', 'room in the link'
    elif sends and not covers(connection['credits_'], int(sends[0]['from_']['bytes_'])):
        stage, actor = 'waits for credit', 'credit'
    else:
        stage, actor = 'waits for a free stream', 'peer_receive'
    for n, send in enumerate(sends):
        yield describe_send(send, stage if n == 0 else 'waits behind other sends', actor)
    if not connection['closer_']:
        return
    if sends:
        yield f'close: waits for sends that have not begun; {actor}'
    elif int(connection['active_sends_']) != 0:
        yield 'close: waits for sends that are under way; peer_receive'
    elif connection['owes_goodbye_']:
        yield 'close: no room for the goodbye; room in the link'
    else:
        yield 'close: goodbye is sent, the peer has not answered; peer_poll'


def describe_connection(connection):
    phase = enumerator(connection['phase_'])
    if phase == 'down':
        return
    yield f"connection {connection.address} to source {int(connection['source_'])}, {phase}, " \
          f"{int(connection['active_sends_'])} sends under way, credit {int(connection['credits_']['available_'])}"
    for line in describe_queue(connection):
        yield '  ' + line
    for line in describe_engines(connection.cast(connection.dynamic_type)):
        yield '  ' + line


def describe_mailbox(mailbox):
    def asked(what, request):
        source = int(request['source_'])
        return f"{what}, {tags(request['wanted_'])}, from " + ('any' if source == 2**32 - 1 else f'source {source}')

    for receive in posted(mailbox['matcher_']):
        yield asked('recv', receive) + ': posted, no message has met it; peer_send'
    for some in receives_of(mailbox['matcher_']):
        for probe in elements(some['probes_'], DETAIL + 'probe_request', DETAIL + 'probe_request'):
            yield asked('probe', probe) + ': no message waits; peer_send'


def describe_scheduler(scheduler):
    yield from describe_waits(scheduler)
    for held in elements(scheduler['described_'], DETAIL + 'described', DETAIL + 'described'):
        function = str(held['describe'])
        for name, describe in (('connection_base', describe_connection), ('mailbox_base', describe_mailbox)):
            if name + '::describe' in function:
                yield from describe(held['self'].cast(pointer(DETAIL + name)).dereference())


class Describe(gdb.Command):
    """Lists the pending operations of every scheduler of the program."""

    def __init__(self):
        super().__init__('rdmacoro-describe', gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        found = gdb.lookup_global_symbol(DETAIL + 'all_schedulers')
        if found is None:
            raise gdb.GdbError('no debug information of rdmacoro: compile with -g')
        gdb.execute('set language c++')  # the innermost frame may be of another
        try:
            self.describe(found.value()['first_'])
        finally:
            gdb.execute('set language auto')

    @staticmethod
    def describe(scheduler):
        while scheduler:
            print(f'scheduler {scheduler}:')
            lines = list(describe_scheduler(scheduler.dereference()))
            for line in lines or ['no operation is pending']:
                print('  ' + line)
            scheduler = scheduler['next_of_all_']


Describe()
