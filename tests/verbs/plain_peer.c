/* A peer of a verbs link, written with libibverbs and librdmacm alone: what a link says is plain verbs (docs/wire-format.md).
 *
 * plain_peer HOST PORT: connects, is told of a region in the first message (address, length, key), reads its first half,
 * writes each byte plus one to its second half, says "done", and ends when it is disconnected. */
#include <rdma/rdma_cma.h>

#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { slots = 16, slot_bytes = 8192, half = 4096, header_bytes = 16 };

static void need(int good, const char *what) {
    if (good) return;
    perror(what);
    exit(1);
}

static struct rdma_cm_event *expect(struct rdma_event_channel *events, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    need(rdma_get_cm_event(events, &event) == 0, "rdma_get_cm_event");
    if (event->event != type) {
        fprintf(stderr, "%s instead of %s, status %d\n", rdma_event_str(event->event), rdma_event_str(type), event->status);
        exit(1);
    }
    return event;
}

static struct ibv_wc completed(struct ibv_cq *queue) {
    struct ibv_wc wc;
    while (ibv_poll_cq(queue, 1, &wc) == 0) {}
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
        exit(1);
    }
    return wc;
}

static void post(struct ibv_qp *pair, enum ibv_wr_opcode what, void *bytes, uint32_t length, uint32_t lkey, uint64_t address,
                 uint32_t rkey) {
    struct ibv_sge piece = {(uintptr_t)bytes, length, lkey};
    struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = what, .send_flags = IBV_SEND_SIGNALED}, *bad;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = rkey;
    need(ibv_post_send(pair, &request, &bad) == 0, "ibv_post_send");
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    struct addrinfo *to, hints = {.ai_socktype = SOCK_STREAM};
    need(getaddrinfo(argv[1], argv[2], &hints, &to) == 0, "getaddrinfo");
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *id;
    need(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
    need(rdma_resolve_addr(id, NULL, to->ai_addr, 2000) == 0, "rdma_resolve_addr");
    rdma_ack_cm_event(expect(events, RDMA_CM_EVENT_ADDR_RESOLVED));
    need(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
    rdma_ack_cm_event(expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED));

    struct ibv_pd *domain = ibv_alloc_pd(id->verbs);
    struct ibv_cq *queue = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
    need(domain && queue, "ibv_create_cq");
    struct ibv_qp_init_attr wanted = {.send_cq = queue, .recv_cq = queue, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16, .max_recv_wr = slots, .max_send_sge = 1, .max_recv_sge = 1}};
    need(rdma_create_qp(id, domain, &wanted) == 0, "rdma_create_qp");
    unsigned char *memory = aligned_alloc(4096, (slots + 1) * slot_bytes);
    /* On iWARP the answer of a read is written to memory that the peer may write to. */
    struct ibv_mr *region = ibv_reg_mr(domain, memory, (slots + 1) * slot_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    need(memory && region, "ibv_reg_mr");
    for (int i = 0; i < slots; i++) {
        struct ibv_sge piece = {(uintptr_t)(memory + i * slot_bytes), slot_bytes, region->lkey};
        struct ibv_recv_wr request = {.wr_id = (uint64_t)i, .sg_list = &piece, .num_sge = 1}, *bad;
        need(ibv_post_recv(id->qp, &request, &bad) == 0, "ibv_post_recv");
    }
    unsigned char *own = memory + slots * slot_bytes;

    uint32_t greeting[6] = {0x56434452, 1, slot_bytes, slots, 0, 0}; /* "RDCV", version, bytes of a slot, credits */
    struct rdma_conn_param parameters = {.private_data = greeting, .private_data_len = sizeof greeting,
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 6, .rnr_retry_count = 7};
    need(rdma_connect(id, &parameters) == 0, "rdma_connect");
    struct rdma_cm_event *answer = expect(events, RDMA_CM_EVENT_ESTABLISHED);
    need(answer->param.conn.private_data_len >= sizeof greeting &&
             memcmp(answer->param.conn.private_data, greeting, 8) == 0, "greeting");
    rdma_ack_cm_event(answer);

    uint32_t word = 2; /* a frame that only gives credits back, none: on iWARP the side that connects speaks first */
    memcpy(own, &word, 4);
    post(id->qp, IBV_WR_SEND, own, 4, region->lkey, 0, 0);
    struct ibv_wc came = completed(queue);
    if (came.opcode != IBV_WC_RECV) came = completed(queue);
    need(came.opcode == IBV_WC_RECV && came.byte_len >= header_bytes + 24, "the first message");
    uint64_t there[3]; /* address, length, key */
    memcpy(there, memory + came.wr_id * slot_bytes + header_bytes, sizeof there);

    post(id->qp, IBV_WR_RDMA_READ, own, half, region->lkey, there[0], (uint32_t)there[2]);
    while (completed(queue).opcode != IBV_WC_RDMA_READ) {}
    for (int i = 0; i < half; i++) own[i]++;
    post(id->qp, IBV_WR_RDMA_WRITE, own, half, region->lkey, there[0] + half, (uint32_t)there[2]);
    unsigned char *last = own + half;
    memset(last, 0, header_bytes);
    word = 1 | 1u << 16; /* a message, and one credit back */
    memcpy(last, &word, 4);
    last[4] = 2; /* its header's first byte: the test's number */
    memcpy(last + header_bytes, "done", 4);
    post(id->qp, IBV_WR_SEND, last, header_bytes + 4, region->lkey, 0, 0);
    rdma_ack_cm_event(expect(events, RDMA_CM_EVENT_DISCONNECTED));
    return 0;
}
